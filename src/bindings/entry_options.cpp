#include "bindings/entry_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "cpython/ref.h"
#include "opt/passes.h"

namespace glowplug::bindings {
namespace {

using cpython::Ref;

constexpr const char* kPasses = "disable_passes";

// What has been said, and the first thing that is wrong.
struct Said {
  std::map<std::string, bool> switches;  // as said, by name
  std::vector<std::string> passes;       // not to be run
  std::string wrong;
};

std::string unknownPass(std::string_view name) {
  std::string known;
  for (const opt::PassInfo& pass : opt::passTable()) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", pass.name);
  }
  return fmt::format("unknown pass '{}' in option '{}'; known passes: {}", name, kPasses, known);
}

bool isPass(std::string_view name) {
  const auto& table = opt::passTable();
  return std::any_of(table.begin(), table.end(),
                     [&](const opt::PassInfo& pass) { return pass.name == name; });
}

// Options that say how native code is made.
bool isOfNativeCode(std::string_view name) {
  return name == "freeze" || name == "pool" || isPass(name);
}

// -1 with a Python error set.
int readPasses(PyObject* value, Said& said) {
  if (PyUnicode_Check(value) || !PySequence_Check(value)) {
    said.wrong = fmt::format("option '{}' is a list of names of passes", kPasses);
    return 0;
  }
  Ref list = Ref::steal(PySequence_List(value));
  if (!list) return -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    Ref text = Ref::steal(PyObject_Str(PyList_GET_ITEM(list.get(), i)));
    const char* name = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    if (!name) return -1;
    if (said.wrong.empty() && !isPass(name)) said.wrong = unknownPass(name);
    said.passes.emplace_back(name);
  }
  return 0;
}

int readOne(PyObject* key, PyObject* value, common::Options& options, Said& said) {
  Ref keyText = Ref::steal(PyObject_Str(key));
  const char* name = keyText ? PyUnicode_AsUTF8(keyText.get()) : nullptr;
  if (!name) return -1;
  if (std::string_view(name) == kPasses) return readPasses(value, said);
  Ref valueText = Ref::steal(PyObject_Str(value));
  const char* text = valueText ? PyUnicode_AsUTF8(valueText.get()) : nullptr;
  if (!text) return -1;
  if (std::string wrong = options.set(name, text); said.wrong.empty()) said.wrong = wrong;
  if (const auto on = common::readSwitch(text)) said.switches[name] = *on;
  return 0;
}

// What cannot both be meant; empty if there is nothing.
std::string contradiction(const Said& said, std::string_view backend) {
  const auto is = [&](const std::string& name, bool on) {
    const auto found = said.switches.find(name);
    return found != said.switches.end() && found->second == on;
  };
  if (is("native", true) && backend != "native") {
    return fmt::format(
        "backend {} and option 'native' contradict each other: native code is made with backend "
        "'native' only",
        backend.empty() ? "(a function)" : fmt::format("'{}'", backend));
  }
  for (const auto& [name, on] : said.switches) {
    if (!on || !isOfNativeCode(name) || !is("native", false)) continue;
    return fmt::format(
        "options 'native' (False) and '{}' (True) contradict each other: the latter is about "
        "native code",
        name);
  }
  for (const std::string& pass : said.passes) {
    if (!is(pass, true)) continue;
    return fmt::format("options '{}' (with '{}') and '{}' (True) contradict each other", kPasses,
                       pass, pass);
  }
  return "";
}

}  // namespace

int readOptions(PyObject* dict, std::string_view backend, common::Options* options) {
  std::vector<std::string> complaints;
  *options = common::Options::fromEnvironment(complaints);
  Said said;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (dict && dict != Py_None && PyDict_Next(dict, &position, &key, &value)) {
    if (readOne(key, value, *options, said) < 0) return -1;
  }
  if (said.wrong.empty()) said.wrong = contradiction(said, backend);
  if (!said.wrong.empty()) {
    PyErr_SetString(PyExc_ValueError, said.wrong.c_str());
    return -1;
  }
  for (const std::string& pass : said.passes) options->set(pass, "false");
  return 0;
}

}  // namespace glowplug::bindings
