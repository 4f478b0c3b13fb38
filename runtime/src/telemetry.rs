//! The log: `tracing` events on stderr, as lines for people or as JSON for collectors. Each call site has a limited
//! rate, and log text cannot control a terminal.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::str::FromStr;

use self::fields::{OnOneLine, Visible};
use self::json::TraceFirst;
use self::limit::Limit;
use crate::terminal::Above;
use crate::visible;
use tracing::Dispatch;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

mod fields;
mod json;
mod limit;

/// The filter without `--log-level` and `RUST_LOG`. The log of the NATS library is off, because it repeats twice a
/// second what the service logs once.
const DEFAULT_FILTER: &str = "info,async_nats=off";
/// At level trace, this module of the NATS library logs passwords.
const NEVER_FINER: &str = "async_nats::connection=debug";

/// The name of the spans that carry a line's trace id.
const TRACED: &str = "traced";

/// A span that adds these ids to its log lines. It is enabled at every level, because it writes nothing by itself.
pub(crate) fn traced(trace: &impl fmt::Display, span: &impl fmt::Display) -> tracing::Span {
    tracing::error_span!(TRACED, trace_id = %trace, span_id = %span)
}

/// The format of log lines.
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

/// An invalid log setting.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("the log format {given:?} is unknown; use text or json")]
    BadFormat { given: String },
    #[error(
        "the log level {given:?} ({origin}) cannot be read: {cause}; give a level such as info, or directives such as info,kube=debug"
    )]
    BadFilter { given: String, origin: &'static str, cause: String },
}

/// Sends the log to stderr. `filter` is `--log-level`. Without it, `RUST_LOG` counts, and then `DEFAULT_FILTER`.
///
/// The first call wins. A later call, or one after a test has set its own subscriber, checks its arguments and changes
/// nothing. Lines have colour only on a terminal and without `NO_COLOR`.
pub fn init(format: LogFormat, filter: Option<&str>) -> Result<(), TelemetryError> {
    let from_environment = std::env::var("RUST_LOG").ok().filter(|directives| !directives.is_empty());
    let filter = match (filter, &from_environment) {
        (Some(given), _) => parse_filter(given, "--log-level")?,
        (None, Some(given)) => parse_filter(given, "RUST_LOG")?,
        (None, None) => parse_filter(DEFAULT_FILTER, "the default")?,
    };
    // An error means that a subscriber is already set. The first subscriber stays.
    let _already_set = subscriber(format, filter, colour(), || Above).try_init();
    Ok(())
}

/// Writes each event with one call of a writer.
fn subscriber<W: Write + 'static>(
    format: LogFormat,
    filter: EnvFilter,
    colour: bool,
    writer: impl Fn() -> W + Clone + Send + Sync + 'static,
) -> Dispatch {
    let (text, json) = (writer.clone(), writer);
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    match format {
        LogFormat::Text => {
            let builder = builder.fmt_fields(OnOneLine).with_ansi(colour);
            builder.with_writer(move || Visible(text(), visible::styled)).finish().with(Limit::default()).into()
        }
        LogFormat::Json => {
            let builder = builder.with_ansi(false).fmt_fields(JsonFields::new()).event_format(TraceFirst::new());
            builder.with_writer(move || Visible(json(), visible::json)).finish().with(Limit::default()).into()
        }
    }
}

fn parse_filter(given: &str, origin: &'static str) -> Result<EnvFilter, TelemetryError> {
    let filter = EnvFilter::builder().parse(given).map_err(|error| TelemetryError::BadFilter {
        given: given.to_owned(),
        origin,
        cause: error.to_string(),
    })?;
    let is_finest = filter.max_level_hint() == Some(LevelFilter::TRACE);
    Ok(if is_finest {
        filter.add_directive(NEVER_FINER.parse().expect("the constant is a valid directive"))
    } else {
        filter
    })
}

/// <https://no-color.org>: set and not empty means no colour.
fn colour() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_bad_filter_is_named_and_a_second_call_is_harmless() {
        let error = init(LogFormat::Text, Some("info,=")).unwrap_err().to_string();
        assert!(error.contains("\"info,=\" (--log-level)"), "{error}");
        init(LogFormat::Text, Some("warn")).unwrap();
        init(LogFormat::Json, Some("warn,kube=debug")).unwrap();
    }

    #[test]
    fn a_line_of_the_log_is_one_line_and_acts_on_no_terminal_whatever_is_logged() {
        const HOSTILE: &str = "a\u{1b}[31m\u{1b}]0;t\u{7}\r\nFORGED\u{7f}\u{9b}2J\u{202e}\u{200b}\t系";
        #[derive(Debug, thiserror::Error)]
        #[error("{HOSTILE}")]
        struct Hostile;
        for (format, colour) in [(LogFormat::Text, false), (LogFormat::Text, true), (LogFormat::Json, false)] {
            let written = Arc::new(Mutex::new(Vec::new()));
            let out = Arc::clone(&written);
            let filter = parse_filter("trace", "the test").unwrap();
            let subscriber = subscriber(format, filter, colour, move || Sink(Arc::clone(&out)));
            tracing::dispatcher::with_default(&subscriber, || {
                let span = tracing::info_span!("span", object = HOSTILE, %HOSTILE);
                let _entered = span.enter();
                let error: &(dyn std::error::Error + 'static) = &Hostile;
                tracing::info!(object = HOSTILE, shown = %HOSTILE, debug = ?HOSTILE, error, r#type = %Hostile, "{HOSTILE}");
            });
            let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
            let plain = if colour { without_colours(&text) } else { text.clone() };
            assert_eq!(plain.matches('\n').count(), 1, "{text:?}");
            assert!(plain.trim_end_matches('\n').chars().all(visible::is_harmless), "{text:?}");
            assert!(plain.contains("FORGED") && plain.contains('系') && plain.contains("object"), "{text:?}");
        }
    }

    #[test]
    fn lines_about_a_span_have_its_ids_in_both_formats_at_every_level() {
        for (format, level) in [(LogFormat::Text, "info"), (LogFormat::Json, "warn")] {
            let written = Arc::new(Mutex::new(Vec::new()));
            let out = Arc::clone(&written);
            let filter = parse_filter(level, "the test").unwrap();
            let subscriber = subscriber(format, filter, false, move || Sink(Arc::clone(&out)));
            tracing::dispatcher::with_default(&subscriber, || {
                tracing::warn!("outside");
                let _traced = traced(&"0af7", &"b7ad").entered();
                let _inner = tracing::info_span!("inner").entered();
                tracing::warn!(n = 1, "inside");
            });
            let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
            let [outside, inside] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
            assert!(!outside.contains("0af7"), "{text}");
            match format {
                LogFormat::Text => assert!(inside.contains("traced{trace_id=0af7 span_id=b7ad}"), "{text}"),
                LogFormat::Json => {
                    let line: serde_json::Value = serde_json::from_str(inside).unwrap();
                    let fields = ["trace_id", "span_id", "message"].map(|name| line[name].as_str());
                    assert_eq!((fields, line["n"].as_u64()), ([Some("0af7"), Some("b7ad"), Some("inside")], Some(1)));
                }
            }
        }
    }

    /// Takes out what sets colours where it belongs: the sequences that this crate writes, and not those of the hostile
    /// text.
    fn without_colours(text: &str) -> String {
        assert!(!text.contains("\u{1b}[31m"), "{text:?}");
        ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[3m", "\u{1b}[32m"]
            .iter()
            .fold(text.to_owned(), |text, style| text.replace(style, ""))
    }

    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn formats_read_as_they_are_written() {
        for format in [LogFormat::Text, LogFormat::Json] {
            assert_eq!(format.to_string().parse::<LogFormat>().unwrap(), format);
        }
        assert!("yaml".parse::<LogFormat>().unwrap_err().to_string().contains("text or json"));
    }
}
