#include "cpython/exception_table.h"

namespace glowplug::cpython {

namespace {

// Six bits a byte, the highest group first; bit 6 says that more follow. (Bit 7 marks an entry's
// start.)
int32_t readNumber(const uint8_t*& position, const uint8_t* end) {
  int32_t number = 0;
  while (position < end) {
    uint8_t byte = *position++;
    number = (number << 6) | (byte & 0x3f);
    if (!(byte & 0x40)) break;
  }
  return number;
}

}  // namespace

std::vector<ExceptionHandler> parseExceptionTable(const uint8_t* bytes, size_t size) {
  std::vector<ExceptionHandler> handlers;
  const uint8_t* end = bytes + size;
  while (bytes < end) {
    ExceptionHandler handler;
    handler.start = readNumber(bytes, end);
    handler.end = handler.start + readNumber(bytes, end);
    handler.target = readNumber(bytes, end);
    int32_t depthAndFlag = readNumber(bytes, end);
    handler.depth = depthAndFlag >> 1;
    handler.pushUnit = depthAndFlag & 1;
    handlers.push_back(handler);
  }
  return handlers;
}

}  // namespace glowplug::cpython
