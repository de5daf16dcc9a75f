#include "generator/families/shared/queueing_model.h"

#include <algorithm>
#include <cmath>

namespace attune {

double round_clocks(double warps, double products, double exponentials, double delay) {
  const int most = static_cast<int>(std::ceil(warps - 1e-9));
  const double highest_rate = 1 / std::max(products, exponentials);
  double rate = 0, rate_of_fewer = 0;
  double waiting_for_products = 0, waiting_for_exponentials = 0;  // customers at the stations
  for (int customers = 1; customers <= most; ++customers) {
    const double at_products = products * (1 + waiting_for_products);
    const double at_exponentials = exponentials * (1 + waiting_for_exponentials);
    rate_of_fewer = rate;
    rate = std::min(customers / (delay + at_products + at_exponentials), highest_rate);
    waiting_for_products = rate * at_products;
    waiting_for_exponentials = rate * at_exponentials;
  }
  return warps / (rate_of_fewer + (rate - rate_of_fewer) * (warps - (most - 1)));
}

}  // namespace attune
