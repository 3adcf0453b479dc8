// The main of test programs that need a Python interpreter (and, through it, torch).
#include <Python.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  Py_InitializeEx(0);
  int result = RUN_ALL_TESTS();
  Py_FinalizeEx();
  return result;
}
