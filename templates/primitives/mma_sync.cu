// #region primitives: of PTX, the instructions that this kernel uses
//% include primitives/prelude/${target}

//% include primitives/data_movement/${target}

//% include primitives/floating_point/${target}

//% include primitives/synchronization/${target}

//% include primitives/warp_matrix/${target}
// #endregion
