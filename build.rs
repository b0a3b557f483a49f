//! Compiles the `.proto` in pure Rust (no `protoc` needed) and keeps its descriptor set for reflection.

use std::error::Error;
use std::path::PathBuf;

const PROTO: &str = "cardfence/v1/cardfence.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true).open_file(PROTO)?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("cardfence.bin"), compiler.encode_file_descriptor_set())?;

    let mut prost = tonic_prost_build::Config::new();
    // Cards are handed on by reference count, never copied.
    prost.bytes(["."]).enable_type_names();
    let server = std::env::var_os("CARGO_FEATURE_SERVER").is_some();
    tonic_prost_build::configure()
        .build_server(server)
        .compile_fds_with_config(compiler.file_descriptor_set(), prost)?;
    Ok(())
}
