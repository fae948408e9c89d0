// A slow link as a program, for tests whose ranks are Python: listens on the target's address, prints where, and passes on until
// its input ends; then prints how often the queue was overrun.
//
//   slow_link_proxy ADDRESS PORT BYTES_PER_SECOND DELAY_SECONDS QUEUE_BYTES STALL_SECONDS
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collectives/testing/slow_link.h"

int main(int argc, char** argv) {
  using namespace tidetape::collectives;
  double rate = 0, delay = 0, stall = 0;
  uint64_t queue = 0;
  if (argc != 7 || !absl::SimpleAtod(argv[3], &rate) || !absl::SimpleAtod(argv[4], &delay) || !absl::SimpleAtoi(argv[5], &queue) ||
      !absl::SimpleAtod(argv[6], &stall)) {
    std::cerr << "usage: slow_link_proxy ADDRESS PORT BYTES_PER_SECOND DELAY_SECONDS QUEUE_BYTES STALL_SECONDS\n";
    return 2;
  }
  const auto target = ParseEndpoint(absl::StrCat(argv[1], " ", argv[2]));
  if (!target.ok()) {
    std::cerr << target.status().message() << "\n";
    return 2;
  }
  const auto link = SlowLink::Start(*target, {rate, absl::Seconds(delay), queue, absl::Seconds(stall)});
  if (!link.ok()) {
    std::cerr << link.status().message() << "\n";
    return 1;
  }
  std::cout << ToText((*link)->endpoint()) << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  std::cout << (*link)->overruns() << std::endl;
  return 0;
}
