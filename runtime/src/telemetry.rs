//! The log: `tracing` events on stderr, as lines for people or as JSON for collectors. No place of the code can write it full.

use std::fmt;
use std::io::IsTerminal;
use std::str::FromStr;

use self::limit::Limit;
use crate::terminal::Above;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

mod limit;

/// What is logged where neither `--log-level` nor `RUST_LOG` says. What the library for NATS says twice a second, the service says once.
const DEFAULT_FILTER: &str = "info,async_nats=off";
/// At its finest this part of the library writes the passwords that it sends.
const NEVER_FINER: &str = "async_nats::connection=debug";

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl FromStr for LogFormat {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<LogFormat, TelemetryError> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(TelemetryError::BadFormat { given: text.to_owned() }),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        })
    }
}

/// A log setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("the log format {given:?} is unknown; it is text or json")]
    BadFormat { given: String },
    #[error(
        "the log level {given:?} ({origin}) cannot be read: {cause}; give a level such as info, or directives such as info,kube=debug"
    )]
    BadFilter { given: String, origin: &'static str, cause: String },
}

/// Sends the log to stderr. `filter` is `--log-level`; without it `RUST_LOG` counts, and then [`DEFAULT_FILTER`].
///
/// The first call wins: a later one, or one after a test has set its own subscriber, checks its arguments and changes
/// nothing. Lines have colour only on a terminal and without `NO_COLOR`.
pub fn init(format: LogFormat, filter: Option<&str>) -> Result<(), TelemetryError> {
    let from_environment = std::env::var("RUST_LOG").ok().filter(|directives| !directives.is_empty());
    let filter = match (filter, &from_environment) {
        (Some(given), _) => parse_filter(given, "--log-level")?,
        (None, Some(given)) => parse_filter(given, "RUST_LOG")?,
        (None, None) => parse_filter(DEFAULT_FILTER, "the default")?,
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Above);
    // An error here means that a subscriber is already set, which is what the caller wanted.
    let _already_set = match format {
        LogFormat::Text => builder.with_ansi(colour()).finish().with(Limit::default()).try_init(),
        LogFormat::Json => {
            builder.json().flatten_event(true).with_ansi(false).finish().with(Limit::default()).try_init()
        }
    };
    Ok(())
}

fn parse_filter(given: &str, origin: &'static str) -> Result<EnvFilter, TelemetryError> {
    let filter = EnvFilter::builder().parse(given).map_err(|error| TelemetryError::BadFilter {
        given: given.to_owned(),
        origin,
        cause: error.to_string(),
    })?;
    let is_finest = filter.max_level_hint() == Some(LevelFilter::TRACE);
    Ok(if is_finest { filter.add_directive(NEVER_FINER.parse().expect("it is a directive")) } else { filter })
}

/// <https://no-color.org>: set and not empty means no colour.
fn colour() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_filter_is_named_and_a_second_call_is_harmless() {
        let error = init(LogFormat::Text, Some("info,=")).unwrap_err().to_string();
        assert!(error.contains("\"info,=\" (--log-level)"), "{error}");
        init(LogFormat::Text, Some("warn")).unwrap();
        init(LogFormat::Json, Some("warn,kube=debug")).unwrap();
    }

    #[test]
    fn formats_read_as_they_are_written() {
        for format in [LogFormat::Text, LogFormat::Json] {
            assert_eq!(format.to_string().parse::<LogFormat>().unwrap(), format);
        }
        assert!("yaml".parse::<LogFormat>().unwrap_err().to_string().contains("text or json"));
    }
}
