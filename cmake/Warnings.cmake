# zoffload_library(NAME SOURCES...): a static library with the project's warnings and sanitizers. Its symbols are
# hidden everywhere, because two Python extensions in one process must not see each other's.
add_library(zoffload_options INTERFACE)
target_compile_options(zoffload_options INTERFACE -Wall -Wextra -Werror)
target_include_directories(zoffload_options INTERFACE ${PROJECT_SOURCE_DIR})
# GCC 12 sees overlapping copies in "literal" + std::string where there are none (GCC bug 105329).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(zoffload_options INTERFACE -Wno-restrict)
endif()
# Kernels promise the same bits everywhere: the compiler must not fuse or reassociate behind their back.
target_compile_options(zoffload_options INTERFACE -ffp-contract=off)
if(ZOFFLOAD_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Instrumented code hides from GCC that the standard library's objects are initialised.
  target_compile_options(zoffload_options INTERFACE -Wno-maybe-uninitialized)
endif()
if(ZOFFLOAD_SANITIZE STREQUAL "address")
  target_compile_options(zoffload_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
                         -fno-omit-frame-pointer)
  target_link_options(zoffload_options INTERFACE -fsanitize=address,undefined)
elseif(ZOFFLOAD_SANITIZE STREQUAL "thread")
  target_compile_options(zoffload_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(zoffload_options INTERFACE -fsanitize=thread)
elseif(ZOFFLOAD_SANITIZE)
  message(FATAL_ERROR "ZOFFLOAD_SANITIZE is '${ZOFFLOAD_SANITIZE}'; it may be address, thread or empty")
endif()

function(zoffload_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC zoffload_options)
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()
