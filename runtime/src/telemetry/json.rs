//! Log lines as JSON.

use super::TRACED;
use std::fmt;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Json, JsonFields, Writer, format};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Puts the ids of a line's trace and span first, where collectors of logs look for them, and not only into the list of
/// spans.
#[derive(Debug)]
pub(super) struct TraceFirst(Format<Json>);

impl TraceFirst {
    pub(super) fn new() -> TraceFirst {
        TraceFirst(format().json().flatten_event(true).with_current_span(false))
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, JsonFields> for TraceFirst {
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let traced = context.event_scope().and_then(|mut scope| scope.find(|span| span.name() == TRACED));
        let fields = traced.and_then(|span| {
            let extensions = span.extensions();
            extensions.get::<FormattedFields<JsonFields>>().map(|fields| fields.fields.clone())
        });
        let Some(ids) = fields else { return self.0.format_event(context, writer, event) };
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        // Both texts are objects that are not empty.
        match (ids.strip_suffix('}'), line.strip_prefix('{')) {
            (Some(ids), Some(line)) => write!(writer, "{ids},{line}"),
            (None, _) | (_, None) => writer.write_str(&line),
        }
    }
}
