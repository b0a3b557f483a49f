//! The HTTP wire, whole: a node over the memory ledger, served on a real socket by the product's own server.
//!
//! One program of its own, because it needs neither the binary nor a database.

#[cfg(test)]
mod protocol;
#[cfg(test)]
mod support;
#[cfg(test)]
mod vectors;
#[cfg(test)]
mod watch;
