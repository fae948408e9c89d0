// Random tapes and problems for tests and benchmarks. Equal seeds give equal tapes.
#ifndef TIDETAPE_PLANNER_TESTING_RANDOM_TAPE_H_
#define TIDETAPE_PLANNER_TESTING_RANDOM_TAPE_H_

#include <cstdint>
#include <random>

#include "planner/model/problem.h"

namespace tidetape::planner {

// A small tape with every kind of storage and op that the planner knows: several outputs, in-place ops, slices, must_save,
// must_recompute, held_anyway, ops that cannot be replayed, inputs and parameters (also written ones), nothing that costs time, no
// bytes. Passes ValidateTape; it may have no plan at all.
BlockTape RandomTape(std::mt19937_64& random, int intermediates);

// A problem of a few blocks over such tapes, some with options. memory_limit_bytes is left at 0.
PlanningProblem RandomProblem(std::mt19937_64& random, int blocks, int intermediates);

// A synthetic tape in the shape of a transformer layer's: a chain of ops with skip connections, a few large products, many cheap
// elementwise ops, one output each.
BlockTape LayerTape(std::mt19937_64& random, int ops);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TESTING_RANDOM_TAPE_H_
