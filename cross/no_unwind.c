/* In place of libunwind, which musl's tables and std name, and which brings the whole of printf
 * along. A panic ends the program at once, and its functions have no tables to walk the stack by: a
 * backtrace is empty, and nothing else here is ever called. Weak: should a later std name one more
 * function, libunwind is linked again, and only the size shows it. */

#define WEAK __attribute__((weak))
#define NEVER_CALLED(name) WEAK void name(void) { __builtin_trap(); }

WEAK int _Unwind_Backtrace(void) { return 5; /* the end of the stack */ }

NEVER_CALLED(__aeabi_unwind_cpp_pr0)
NEVER_CALLED(__aeabi_unwind_cpp_pr1)
NEVER_CALLED(__aeabi_unwind_cpp_pr2)
NEVER_CALLED(__gnu_unwind_frame)
NEVER_CALLED(_Unwind_GetDataRelBase)
NEVER_CALLED(_Unwind_GetLanguageSpecificData)
NEVER_CALLED(_Unwind_GetRegionStart)
NEVER_CALLED(_Unwind_GetTextRelBase)
NEVER_CALLED(_Unwind_VRS_Get)
NEVER_CALLED(_Unwind_VRS_Set)
