//! `cardfence serve`: settings to a running registry, until it is told to stop.

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::exit::Exit;
use super::failure::{Failure, chained, failed};
use super::printer::Printer;
use super::stop::Signals;
use crate::config::{self, Config, LogFormat};
use crate::server;
use crate::telemetry;

// The settings are a group of the same name.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    #[command(flatten)]
    settings: config::Args,
    /// A TOML file with these settings, under their names with `_` for `-`; flags and environment win over it
    #[arg(long, env = "CARDFENCE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the settings that would be used, secrets hidden, and end
    #[arg(long)]
    print_config: bool,
}

pub(super) async fn run(args: Args, printer: &mut Printer) -> Result<Exit, Failure> {
    let config = config(args.settings, args.config)?;
    if args.print_config {
        print(&config, printer)?;
        return Ok(Exit::Done);
    }
    let json = config.log_format == LogFormat::Json;
    let _telemetry = telemetry::tracing::start(json, &config.log, config.otlp_endpoint.as_deref())
        .map_err(|error| Failure::Usage(chained(&error)))?;
    let mut signals = Signals::listen()?;
    let stop = CancellationToken::new();
    let ready = |address| printer.note(format_args!("listening on http://{address}"));
    let ended = tokio::select! {
        ended = server::run(config, ready, stop.clone().cancelled_owned()) => Some(ended),
        () = signals.twice(&stop) => None,
    };
    match ended {
        Some(Ok(())) => Ok(Exit::Done),
        Some(Err(error)) => Err(failed(chained(&error))),
        None => Err(failed("told twice to stop, so what was in flight was dropped")),
    }
}

fn config(settings: config::Args, file: Option<PathBuf>) -> Result<Config, Failure> {
    let unusable = |error: config::Error| Failure::Usage(chained(&error));
    let settings = match file {
        Some(path) => settings.over(config::Args::from_file(&path).map_err(unusable)?),
        None => settings,
    };
    settings.check().map_err(unusable)
}

fn print(config: &Config, printer: &mut Printer) -> Result<(), Failure> {
    let text = config.to_string();
    if !printer.is_json() {
        return Ok(printer.raw(text.as_bytes())?);
    }
    let table: toml::Table = toml::from_str(&text).map_err(|error| failed(error.to_string()))?;
    let json = serde_json::to_vec(&table).map_err(|error| failed(error.to_string()))?;
    Ok(printer.json(&json)?)
}
