// What a stream of the host's stand-in for a GPU looks like from another library, which must not depend on the C++ behind it.
#ifndef TIDETAPE_COLLECTIVES_DEVICE_HOST_STREAM_H_
#define TIDETAPE_COLLECTIVES_DEVICE_HOST_STREAM_H_

namespace tidetape::collectives {

struct HostStream {
  // Runs work(argument) after all that was given before, on the stream's own thread.
  void (*enqueue)(HostStream* self, void (*work)(void* argument), void* argument);
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_DEVICE_HOST_STREAM_H_
