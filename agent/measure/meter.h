// The metering CPU allocator: live bytes and their peak, exactly, over the whole process.
//
// Counts requested bytes of every tensor that libtorch allocates on the CPU, from Install() on, and of storages that Adopt() was
// shown. Scratch memory that oneDNN and MKL take by themselves is not seen.
#ifndef TIDETAPE_AGENT_MEASURE_METER_H_
#define TIDETAPE_AGENT_MEASURE_METER_H_

#include <cstdint>

namespace c10 {
struct StorageImpl;
}

namespace tidetape::agent::meter {

// Puts the meter in front of libtorch's CPU allocator. Idempotent.
void Install();

// Counts a storage that was allocated before Install(), until it is freed. Storages that the meter allocated, empty ones and those
// of other devices are left alone.
void Adopt(c10::StorageImpl* storage);

// Counts memory of tensors that libtorch's allocator did not give: arenas that ranks share. Negative where it goes.
void Count(int64_t bytes);

// Bytes alive now. Thread-safe, like everything below; one load.
int64_t LiveBytes();

// The most bytes alive since the last TakePeak(), and the start of a new interval.
int64_t TakePeak();

// A second peak, for people: the step profile owns TakePeak().
int64_t PeakBytes();
void ResetPeak();

}  // namespace tidetape::agent::meter

#endif  // TIDETAPE_AGENT_MEASURE_METER_H_
