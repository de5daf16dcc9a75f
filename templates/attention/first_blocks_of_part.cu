  i32 begin = 0, unmasked_begin = 0;  // of a part of the blocks; what a query attends to begins with the first key
