//! What a check costs: validation, all digests and both fingerprints of one card, against a mere parse.
//!
//! Both run over the same bytes in the same process, so that their ratio means something on any machine.
//! The goal is at most eight parses.

use std::hint::black_box;

use bytes::Bytes;
use cardfence::card::{Card, Limits};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// A signed v1.0 card of about 2 KB: two interfaces, two schemes, four skills.
const CARD: &str = include_str!("../tests/fixtures/bench_card.json");

fn check(c: &mut Criterion) {
    let (bytes, limits) = (Bytes::from_static(CARD.as_bytes()), Limits::default());
    let mut group = c.benchmark_group("card");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("serde_json_value", |b| {
        b.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(&bytes)));
    });
    group.bench_function("check", |b| b.iter(|| Card::check(black_box(bytes.clone()), &limits)));
    group.finish();
}

criterion_group!(benches, check);
criterion_main!(benches);
