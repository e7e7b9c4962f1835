// Whose turn it is, of several threads that want it.
#include "lib/comm/driver_seat.h"

#include "tests/support/catch.h"

namespace driver_seat_test {

using gyre::comm::DriverSeat;
using TakeResult = DriverSeat::TakeResult;

TEST_CASE("who leaves a seat twice does not take it from the next one") {
  DriverSeat seat;
  const int first = 0, second = 0, third = 0;
  CHECK(seat.take(&first, false) == TakeResult::newly);
  CHECK(seat.take(&first, false) == TakeResult::kept);
  CHECK(seat.take(&second, false) == TakeResult::no);
  seat.leave(&first);
  CHECK(seat.take(&second, false) == TakeResult::newly);
  seat.leave(&first);
  CHECK(seat.take(&third, false) == TakeResult::no);
  seat.leave(&second);
  CHECK(seat.take(&third, false) == TakeResult::newly);
}

}  // namespace driver_seat_test
