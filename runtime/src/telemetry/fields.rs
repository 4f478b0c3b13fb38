//! Formats the fields of a log line. Values may come from the cluster, so they must neither break the line nor control
//! a terminal.

use crate::visible::Line;
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

/// The message, and `name=value` for each field, on one line.
#[derive(Debug)]
pub(super) struct OnOneLine;

impl<'writer> FormatFields<'writer> for OnOneLine {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut visitor = Fields { writer, first: true, result: Ok(()) };
        fields.record(&mut visitor);
        visitor.result
    }
}

struct Fields<'writer> {
    writer: Writer<'writer>,
    first: bool,
    result: fmt::Result,
}

impl Fields<'_> {
    fn write(&mut self, name: &str, value: fmt::Arguments<'_>) -> fmt::Result {
        if !std::mem::take(&mut self.first) {
            self.writer.write_char(' ')?;
        }
        match (name, self.writer.has_ansi_escapes()) {
            ("message", _) => {}
            (name, true) => write!(self.writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m")?,
            (name, false) => write!(self.writer, "{name}=")?,
        }
        Line(&mut self.writer).write_fmt(value)
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let name = field.name();
        // The origin of events from the crate `log`, which the line already shows.
        if self.result.is_ok() && !name.starts_with("log.") {
            self.result = self.write(name.strip_prefix("r#").unwrap_or(name), format_args!("{value:?}"));
        }
    }
}

/// A writer of whole lines that escapes control characters.
pub(super) struct Visible<W>(pub(super) W, pub(super) fn(&str) -> Cow<'_, str>);

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let shown = String::from_utf8_lossy(text);
        self.0.write_all((self.1)(&shown).as_bytes())?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
