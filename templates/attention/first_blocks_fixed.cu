  static constexpr i32 begin = 0, unmasked_begin = 0;  // what a query attends to begins with the first key
