//! stub

pub mod terms;
