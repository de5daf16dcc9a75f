#pragma once

// The table of calls of a kind that was checked before, and what such a call is recognized by. known_calls.cpp enters
// them and serves calls from Python; operators.cpp serves those that come from PyTorch.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "attune.h"
#include "dlpack_exchange.h"

namespace attune_python {

// attune_forward and attune_backward.
using Function = attune_status (*)(const attune_problem*, const attune_operand*, size_t, void*, size_t, void*);

constexpr size_t kForwardOperands = ATTUNE_LSE + 1, kBackwardOperands = ATTUNE_D_LSE + 1;

// The operands of a call, in the order of their names: a copy of what a kind has, to which the call's pointers are
// given.
struct Operands {
  attune_operand list[kBackwardOperands];

  attune_tensor& operator[](int name) { return list[name].tensor; }
  const attune_tensor& operator[](int name) const { return list[name].tensor; }
};

// The tensors of a call in the order in which a key has them.
enum { kQ, kK, kV, kOut, kLse, kGradOut, kGradLse };

constexpr int kMostDimensions = 4;
constexpr int kMostTensors = kGradLse + 1;
constexpr int kWordsOfTensor = 2 + 2 * kMostDimensions;  // type and dimensions, device, shape, strides
constexpr int kWordsOfOptions = 5;                       // choices, scale, softcap, both sides of the window
constexpr int kMostWords = kMostTensors * kWordsOfTensor + kWordsOfOptions + 1;
constexpr int kBuckets = 2048;  // of a table
// The most entries of a table; _calls.py, which enters as many kinds and then forgets them, never gets here.
constexpr int kMostEntries = 4096;
constexpr uint64_t kAlignment = 16;  // the most that a kernel asks of an address

inline uint64_t address_of(const DLTensor& tensor) {
  return reinterpret_cast<uint64_t>(tensor.data) + tensor.byte_offset;
}

inline void* data_of(const DLTensor& tensor) { return static_cast<char*>(tensor.data) + tensor.byte_offset; }

// (causal, scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p): what _options.py lists, as
// attention() takes it. Calls with dropout have a tensor more, and are not served here.
struct Options {
  static constexpr int64_t kCausal = 1, kTopLeft = 2, kBshd = 4, kDeterministic = 8, kDeterministicGiven = 16,
                           kScale = 32, kWindow = 64, kInvariant = 128, kSoftcap = 256, kAllChoices = 511;
  static constexpr int kCount = 9;

  int64_t choices = 0;
  double scale = 0;             // counts if kScale is chosen
  double softcap = 0;           // counts if kSoftcap is chosen
  int64_t left = 0, right = 0;  // of the window, if kWindow is: -1 is all of a side

  bool has(int64_t choice) const { return (choices & choice) != 0; }

  // Gradients depend on whether they must be deterministic: where the call does not say, PyTorch does.
  void settle_deterministic(bool is_enabled) {
    if (!has(kDeterministicGiven)) choices |= kDeterministicGiven | (is_enabled ? kDeterministic : 0);
  }
};

// What a call is recognized by.
struct Key {
  int64_t words[kMostWords];
  int count = 0;
  uint64_t addresses = 0;  // or-ed: their alignment becomes a word in the end

  void add(int64_t word) { words[count++] = word; }

  void add(const DLTensor& tensor) {
    add(int64_t{tensor.dtype.code} | int64_t{tensor.dtype.bits} << 8 | int64_t{tensor.dtype.lanes} << 16 |
        int64_t{tensor.ndim} << 32);
    add(int64_t{tensor.device.device_type} << 32 | static_cast<uint32_t>(tensor.device.device_id));
    for (int axis = 0; axis < tensor.ndim; ++axis) {
      add(tensor.shape[axis]);
      add(tensor.strides[axis]);
    }
  }

  // In the place of a tensor that is not there; no tensor begins with it.
  void add_nothing() { add(-1); }

  void note_address(const DLTensor& tensor) { addresses |= address_of(tensor); }

  void add_alignment() { add(static_cast<int64_t>(addresses & (kAlignment - 1))); }

  void add_bits(double number) {
    int64_t bits = 0;
    memcpy(&bits, &number, sizeof bits);
    add(bits);
  }

  void add(const Options& options) {
    add(options.choices);
    add_bits(options.scale);
    add_bits(options.softcap);
    add(options.left);
    add(options.right);
  }

  void add_forward_tensors(const DLTensor* tensors) {
    for (int i = kQ; i <= kV; ++i) {
      add(tensors[i]);
      note_address(tensors[i]);
    }
    add_alignment();
  }

  void add_backward_tensors(const DLTensor* tensors, bool has_grad_lse) {
    for (int i = kQ; i <= kGradLse; ++i) {
      if (i == kGradLse && !has_grad_lse) {
        add_nothing();
        continue;
      }
      add(tensors[i]);
      if (i != kLse && i != kGradLse) note_address(tensors[i]);
    }
    add_alignment();
  }

  uint64_t hash() const {
    uint64_t mixed = 0;
    for (int i = 0; i < count; ++i) {
      mixed = (mixed ^ static_cast<uint64_t>(words[i])) * 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
      mixed ^= mixed >> 29;
    }
    return mixed;
  }

  bool operator==(const Key& other) const {
    return count == other.count && memcmp(words, other.words, sizeof words[0] * static_cast<size_t>(count)) == 0;
  }
};

// What calls of one kind hand over, but for pointers to data.
struct Launch {
  uint64_t function = 0;  // attune_forward or attune_backward
  attune_problem problem;
  Operands operands = {};
  size_t operand_count = 0;  // kForwardOperands or kBackwardOperands
  size_t workspace_bytes = 0;
  int64_t workspace_elements = 0;  // of q's type; 0 if no workspace is needed

  attune_status run(const Operands& handed, void* workspace, void* stream) const {
    return reinterpret_cast<Function>(function)(&problem, handed.list, operand_count, workspace, workspace_bytes,
                                                stream);
  }

  bool is_bshd() const { return problem.layout == ATTUNE_LAYOUT_BSHD; }

  // Whether a result that PyTorch has just made can be handed over as `expected` has it: in eager programs always.
  bool fits(const DLTensor& tensor, const attune_tensor& expected) const {
    const int head_axis = is_bshd() ? 2 : 1, seq_axis = is_bshd() ? 1 : 2;
    return tensor.ndim == kMostDimensions && tensor.strides[0] == expected.stride_batch &&
           tensor.strides[head_axis] == expected.stride_head && tensor.strides[seq_axis] == expected.stride_row &&
           address_of(tensor) % kAlignment == 0;
  }
};

struct Entry {
  Entry* next = nullptr;  // in its bucket
  uint64_t hash = 0;
  int users = 1;  // the table, and each call under way
  Key key;
  Launch launch;
  // Arguments of new_empty(): sizes one by one, which PyTorch reads faster than a tuple of them.
  PyObject* workspace_shape = nullptr;  // null if no workspace is needed
  PyObject* lse_shape = nullptr;

  ~Entry() {
    Py_XDECREF(workspace_shape);
    Py_XDECREF(lse_shape);
  }

  void let_go() {
    if (--users == 0) delete this;
  }
};

// An entry that a call uses: it stays, though the table may forget it.
class Use {
 public:
  explicit Use(Entry* entry) : entry_(entry) {
    if (entry_ != nullptr) ++entry_->users;
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    if (entry_ != nullptr) entry_->let_go();
  }

  const Entry* operator->() const { return entry_; }
  explicit operator bool() const { return entry_ != nullptr; }

 private:
  Entry* entry_;
};

// Who has Python's lock may call everything, and is the only one who changes the table or counts uses. copy() is for
// those who have not: it keeps off changes by a lock of the table's own, in which no Python code runs.
class Table {
 public:
  Entry* find(const Key& key) const {
    const uint64_t hash = key.hash();
    Entry* entry = buckets_[hash % kBuckets];
    while (entry != nullptr && !(entry->hash == hash && entry->key == key)) entry = entry->next;
    return entry;
  }

  bool copy(const Key& key, Launch& launch) {
    pthread_mutex_lock(&lock_);
    const Entry* const entry = find(key);
    if (entry != nullptr) launch = entry->launch;
    pthread_mutex_unlock(&lock_);
    return entry != nullptr;
  }

  // For a fork: the child must not find the lock held by a thread that it does not have.
  void hold() { pthread_mutex_lock(&lock_); }
  void release() { pthread_mutex_unlock(&lock_); }

  int size() const { return count_; }

  // Takes the place of an entry with the same key. False if the table is full.
  bool add(Entry* entry) {
    entry->hash = entry->key.hash();
    Entry** place = &buckets_[entry->hash % kBuckets];
    while (*place != nullptr && !((*place)->hash == entry->hash && (*place)->key == entry->key))
      place = &(*place)->next;
    Entry* const before = *place;
    if (before == nullptr && count_ == kMostEntries) return false;
    entry->next = before == nullptr ? nullptr : before->next;
    pthread_mutex_lock(&lock_);
    *place = entry;
    pthread_mutex_unlock(&lock_);
    if (before == nullptr) {
      ++count_;
    } else {
      before->let_go();
    }
    return true;
  }

  void clear() {
    for (Entry*& bucket : buckets_) {
      while (bucket != nullptr) {
        Entry* const entry = bucket;
        pthread_mutex_lock(&lock_);
        bucket = entry->next;
        pthread_mutex_unlock(&lock_);
        --count_;
        entry->let_go();
      }
    }
  }

 private:
  Entry* buckets_[kBuckets] = {};
  int count_ = 0;
  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
};

extern Table forward_calls, backward_calls;

// A counted reference to an object; empty after a call that failed.
class Reference {
 public:
  explicit Reference(PyObject* owned = nullptr) : object_(owned) {}
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  ~Reference() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  void take(PyObject* owned) {
    PyObject* const before = object_;
    object_ = owned;
    Py_XDECREF(before);
  }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_;
};

inline PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

inline PyObject* not_served() { return none(); }

inline void keep(PyObject*& place, PyObject* object) {
  Py_INCREF(object);
  PyObject* const before = place;
  place = object;
  Py_XDECREF(before);
}

// The three tensors of a forward call; false if one is not exactly a torch.Tensor with memory of its own.
bool read_forward_tensors(PyObject* const* objects, DLTensor* tensors);

// False unless each option is of the type that it has in most programs.
bool read_options(PyObject* object, Options& options);

}  // namespace attune_python
