//! stub

pub mod terms;

pub mod clock;
