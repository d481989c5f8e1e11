// Functions between MX_TARGET_BEGIN and MX_TARGET_END are compiled for more than the baseline. A flag for each file
// would do the same, but torch's extension builder has one set of flags for all.
#pragma once

#define MX_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define MX_TARGET_BEGIN(isa) MX_PRAGMA(clang attribute push(__attribute__((target(isa))), apply_to = function))
#define MX_TARGET_END _Pragma("clang attribute pop")
#else
#define MX_TARGET_BEGIN(isa) _Pragma("GCC push_options") MX_PRAGMA(GCC target(isa))
#define MX_TARGET_END _Pragma("GCC pop_options")
#endif
