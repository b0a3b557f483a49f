//! The gRPC wire, whole: a node over the memory ledger, served on a real socket, asked by the generated client.
//!
//! One program of its own, because it needs neither the binary nor a database.

#[cfg(test)]
mod bytes;
#[cfg(test)]
mod history;
#[cfg(test)]
mod life;
#[cfg(test)]
mod protocol;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod replicas;
#[cfg(test)]
mod support;
#[cfg(test)]
mod watch;
