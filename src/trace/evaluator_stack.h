#pragma once

// CPython's own evaluator needs no C stack for a call of a Python function from Python; with a
// frame evaluation hook every such call nests in C. So that recursion ends where Python's limit
// says and not in a crash, a frame that finds the thread's stack nearly used up is evaluated on a
// further one.
namespace glowplug::trace {

// Less is left of this thread's present stack than a frame may need.
bool stackIsLow();

// Calls function(argument) on a stack of its own and comes back when it returns. It must not throw.
// Without memory for a stack, it is called on the present one.
void callOnFurtherStack(void (*function)(void*), void* argument);

}  // namespace glowplug::trace
