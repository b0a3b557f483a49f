//! The binary: arguments in, exit code out. Everything else is the library's `cli`.

use std::process::ExitCode;

use cardfence::cli::Cli;

#[tokio::main]
async fn main() -> ExitCode {
    let ended = match Cli::from_arguments(std::env::args_os()) {
        Ok(cli) => cli.run().await,
        Err(told) => told,
    };
    ended.into()
}
