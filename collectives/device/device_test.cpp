#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "collectives/device/cuda_device.h"
#include "collectives/device/host_device.h"
#include "collectives/device/host_stream.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

void Finish(HostDevice& device, Device::Stream stream) {
  const Device::Event event = *device.Record(stream);
  while (!*device.Passed(event)) absl::SleepFor(absl::Milliseconds(1));
  device.DestroyEvent(event);
}

TEST(HostDeviceTest, AStreamKeepsItsOrderAndOtherWorkHasItsPlaceInIt) {
  HostDevice device;
  const Device::Stream stream = *device.MakeStream();
  std::vector<std::byte> memory(8, std::byte{1}), other(8, std::byte{2});
  // Put between the copies by another library.
  struct Seen {
    const std::vector<std::byte>* memory;
    std::byte value;
  } seen = {&memory, {}};
  ASSERT_TRUE(device.Clear(memory.data(), 8, stream).ok());
  ASSERT_TRUE(device.Copy(memory.data() + 2, other.data(), 3, stream).ok());
  auto* const as_host_stream = static_cast<HostStream*>(stream);
  as_host_stream->enqueue(
      as_host_stream, [](void* at) { static_cast<Seen*>(at)->value = static_cast<Seen*>(at)->memory->at(2); }, &seen);
  ASSERT_TRUE(device.Copy(memory.data() + 2, memory.data(), 1, stream).ok());
  Finish(device, stream);
  EXPECT_EQ(seen.value, std::byte{2});
  const int expected[] = {0, 0, 0, 2, 2, 0, 0, 0};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(memory[i], std::byte(expected[i])) << i;
  device.DestroyStream(stream);
}

TEST(HostDeviceTest, StreamsDoNotWaitForEachOtherAndEventsPassNotBefore) {
  HostDevice device;
  const Device::Stream held = *device.MakeStream(), free = *device.MakeStream();
  std::atomic<bool> go = false;
  auto* const as_host_stream = static_cast<HostStream*>(held);
  as_host_stream->enqueue(
      as_host_stream,
      [](void* at) {
        while (!*static_cast<std::atomic<bool>*>(at)) absl::SleepFor(absl::Milliseconds(1));
      },
      &go);
  const Device::Event event = *device.Record(held);
  Finish(device, free);
  EXPECT_FALSE(*device.Passed(event));
  go = true;
  Finish(device, held);
  EXPECT_TRUE(*device.Passed(event));
  device.DestroyEvent(event);
  device.DestroyStream(held);
  device.DestroyStream(free);
}

TEST(CudaDeviceTest, SaysWhatIsMissing) {
  const auto device = CudaDevice::Open(0, "/nowhere/libcudart.so");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(device.status().message()).find("/nowhere/libcudart.so"), std::string::npos);
}

}  // namespace
}  // namespace tidetape::collectives
