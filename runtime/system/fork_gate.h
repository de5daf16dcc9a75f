#pragma once

namespace attune {

/// Keeps fork() out of sections in which a child would be left with half a change, or with a lock whose holder does not
/// exist in it. A fork of any thread waits until all other threads have left their sections, and who wants to enter one
/// meanwhile waits for the fork.
///
/// A section calls no code of the caller's (a log sink may wait for Python's lock, which the thread that forks holds)
/// and ends in bounded time. Sections nest. Who may not promise that uses an ActivityMutex.
class ForkGate {
 public:
  class Section {
   public:
    Section() { enter(); }
    ~Section() { leave(); }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;
  };

  static void enter();
  static void leave() noexcept;
};

/// What is done at each fork beside keeping it out of sections, in the order of the members. Objects live until the
/// process ends and are made when the library is loaded; functions may be null and throw nothing.
struct ForkHook {
  ForkHook(void (*before_fork)(), void (*after_in_parent)(), void (*after_in_child)());
  ForkHook(const ForkHook&) = delete;
  ForkHook& operator=(const ForkHook&) = delete;

  void (*const before)();     ///< all sections have been left
  void (*const in_parent)();  ///< none has been entered yet
  void (*const in_child)();   ///< the same; the child has no other thread
  ForkHook* next = nullptr;
};

/// How often this process and those before it were forked: differs between a process and the one it was forked from.
int fork_generation() noexcept;

}  // namespace attune
