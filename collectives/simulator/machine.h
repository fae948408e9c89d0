// What a cluster can do, in the few numbers that the simulator knows.
#ifndef TIDETAPE_COLLECTIVES_SIMULATOR_MACHINE_H_
#define TIDETAPE_COLLECTIVES_SIMULATOR_MACHINE_H_

namespace tidetape::collectives {

// Of one rank, in each direction. A message of n bytes alone takes put_seconds + latency_seconds + n / bytes_per_second.
struct LinkModel {
  double bytes_per_second = 0;
  double latency_seconds = 0;
  double put_seconds = 0;      // of the sender, before it can go on
  bool sender_copies = false;  // the sender's own time goes into the transfer, as with memory shared by processes
  bool multicast = false;      // one write reaches all ranks of the node
  // The sending host moves the bytes with one of its processors, as over the loopback interface; so it does where the sender
  // copies.
  bool takes_processor = false;
};

struct Machine {
  LinkModel local;                     // within a node
  LinkModel network;                   // between nodes, along rails
  double copy_bytes_per_second = 0;    // of a local copy, bytes read
  double add_elements_per_second = 0;  // of converting, adding or scaling; sums of several count by the bytes that they move
  double step_seconds = 0;             // overhead of copies and additions; those that follow each other directly are one kernel
  // Of a host, for its ranks' copies and additions, and for links that take one; 0: as many as are wanted.
  int processors = 0;
};

// An H100 node as its data sheets have it: NVLink 4 with 450 GB/s in each direction, one 400 Gb/s adapter a GPU, 3.35 TB/s of
// memory. The latencies are assumptions: 3 us for a copy engine's write, 10 us over the network.
inline Machine H100Machine() {
  Machine machine;
  machine.local = {450e9, 3e-6, 1e-6, false, true};
  machine.network = {50e9, 10e-6, 1e-6, false, false};
  machine.copy_bytes_per_second = 3.35e12 / 2;     // read and write
  machine.add_elements_per_second = 3.35e12 / 10;  // reads 2 + 4 bytes, writes 4
  machine.step_seconds = 3e-6;
  return machine;
}

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_SIMULATOR_MACHINE_H_
