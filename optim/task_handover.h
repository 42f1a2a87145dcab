// What a thread sanitizer has to be told about oneTBB, which is not built with it: that a task
// which one thread enqueues is handed over safely to the worker that runs it. Otherwise empty.
#pragma once

#if defined(__SANITIZE_THREAD__)  // GCC
#define ZO_THREAD_SANITIZER 1
#elif defined(__has_feature)  // clang
#if __has_feature(thread_sanitizer)
#define ZO_THREAD_SANITIZER 1
#endif
#endif

#ifdef ZO_THREAD_SANITIZER
extern "C" {
void AnnotateHappensBefore(const char* file, int line, const volatile void* address);
void AnnotateHappensAfter(const char* file, int line, const volatile void* address);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace zoffload {

// Around the call that enqueues. All that came before it happens before taken_over(address). What
// the call writes is oneTBB's own task object, which the worker reads before it can say that it
// took over: not looked at.
class TaskHandover {
 public:
#ifdef ZO_THREAD_SANITIZER
  explicit TaskHandover(const void* address) {
    AnnotateHappensBefore(__FILE__, __LINE__, address);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~TaskHandover() { AnnotateIgnoreWritesEnd(__FILE__, __LINE__); }
#else
  explicit TaskHandover(const void*) {}
  ~TaskHandover() {}
#endif
  TaskHandover(const TaskHandover&) = delete;
  TaskHandover& operator=(const TaskHandover&) = delete;
};

// First thing in the task.
inline void taken_over([[maybe_unused]] const void* address) {
#ifdef ZO_THREAD_SANITIZER
  AnnotateHappensAfter(__FILE__, __LINE__, address);
#endif
}

}  // namespace zoffload
