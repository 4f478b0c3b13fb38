//! `decisions`: the decision log, past and ongoing.
//!
//! * `record`: an entry as a line or as JSON
//! * `stream`: the log across the ends of connections
//! * `keeping`, `standing`: files and probes of a reader that runs for long
//! * `sink`: an HTTP receiver instead of the output

use super::columns::{Cell, Widths};
use super::document::{self, Document, Kind, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Decisions, Format};
use super::naming::{Catalogue, Served};
use super::questions::answered;
use super::service::{Need, Service};
use super::session::Session;
use crate::remote::{PAGE_SIZE, PAGES_MAX, endless};
use keeping::{Bookmark, STORE_EVERY};
use proto::decision::v1beta1::watch_decisions_request::Start;
use proto::decision::v1beta1::{
    DecisionEvent, DecisionFilter, EventEncoding, GetDecisionRequest, ListDecisionsRequest, Phase, Position,
};
use proto::r#type::v1beta1::{GroupResource, ObjectFilter};
use record::{Line, Record, heading, line};
use runtime::admin;
use runtime::listen::bind;
use runtime::shutdown::Shutdown;
use runtime::telemetry::{self, LogFormat};
use serde_json::Value;
use sink::Sink;
use standing::Standing;
use std::sync::Arc;
use std::time::SystemTime;
use stream::{Follow, Next};
use tokio::net::TcpListener;
use tokio::time::Instant;

mod keeping;
pub(super) mod record;
mod sink;
mod standing;
pub(super) mod stream;

const FORMATS: [Format; 5] = [Format::Table, Format::Wide, Format::Json, Format::Yaml, Format::Ndjson];
const CLOUD_FORMATS: [Format; 3] = [Format::Ndjson, Format::Json, Format::Yaml];
/// The number of events shown without --last and --since.
const LAST_DEFAULT: usize = 100;
const LAST_MAX: usize = 100_000;
/// Warnings of the libraries, such as of a token file that cannot be read. Queries have no log.
const LOG_LEVEL: &str = "warn";
/// Minimum widths of the first columns of a stream, so that most later rows fit.
const FOLLOWED: [usize; 4] = [9, 10, 10, 40];

pub(super) async fn run(flags: Decisions) -> Answered {
    let formats = if flags.cloudevents { &CLOUD_FORMATS[..] } else { &FORMATS };
    let mut session = Session::open(flags.asking.clone(), formats).await?;
    if flags.follow && matches!(session.format, Format::Json | Format::Yaml) {
        return Err(Problem::sentence("--follow has no end, so the answer cannot be one document: use -o ndjson"));
    }
    let bookmark = Bookmark::open(flags.position.as_deref()).await?;
    let start = start(&flags, &bookmark)?;
    let standing = Standing::new(flags.to.sink.is_some());
    let sink = match &flags.to.sink {
        Some(url) => Some(Sink::open(&flags.to, url, Arc::clone(&standing)).await?),
        None => None,
    };
    let admin = match &flags.admin_listen {
        Some(address) => Some(bind("--admin-listen", &address.to_string()).await.map_err(anyhow::Error::from)?),
        None => None,
    };
    if sink.is_some() || admin.is_some() {
        telemetry::init(LogFormat::Text, Some(LOG_LEVEL)).map_err(anyhow::Error::from)?;
    }
    let mut service = Service::connect(&mut session, Need::Leader).await?;
    let mut out = Out {
        schema: Schema::load()?,
        format: session.format,
        document: Vec::new(),
        head: session.headings(),
        widths: Widths::default(),
        none: true,
        at: None,
    };
    if flags.follow {
        out.widths.widen(&FOLLOWED.map(|width| Cell::plain("-".repeat(width))));
    }
    if let Some(decision_id) = flags.decision.clone() {
        let phases = phases(&mut service, decision_id).await?;
        out.take(&session, phases.into_iter().map(Record::of).collect())?;
        out.end(&session)?;
        return Ok(Ending::Fine);
    }
    let resources = resources(&session, &flags.resources).await?;
    let filters = filters(&flags, resources, session.searched());
    let start = match start {
        Some(start) => Some(start),
        None if flags.follow && flags.last.is_none() && flags.since.is_none() => Some(Start::Now(true)),
        None => {
            let past = past(&mut service, &flags, &filters).await?;
            let last = past.last().and_then(|event| event.position.clone());
            out.take(&session, past.into_iter().map(Record::of).collect())?;
            flags.follow.then(|| last.map_or(Start::Oldest(true), Start::After))
        }
    };
    let Some(start) = start else {
        out.end(&session)?;
        return Ok(Ending::Fine);
    };
    let is_cloud = flags.cloudevents || sink.is_some();
    let encoding = if is_cloud { EventEncoding::Cloudevents } else { EventEncoding::Native };
    let mut follow = Follow::new(service, start, filters, encoding);
    if sink.is_some() || bookmark.is_kept() {
        follow = follow.wanting_all();
    }
    let stop = Shutdown::new();
    let serving = serve(admin, Arc::clone(&standing));
    let work = async {
        let Some(sink) = sink else {
            read(&mut session, &mut follow, flags.follow, (bookmark, &standing), &stop, &mut out).await?;
            return out.end(&session);
        };
        sink.run(session, follow, bookmark, &stop).await
    };
    tokio::select! {
        biased;
        failed = stop.clone().on_signals() => failed?,
        failed = serving => failed?,
        ended = Box::pin(work) => ended?,
    }
    Ok(Ending::Fine)
}

/// Answers probes, if there is a port for them.
async fn serve(listener: Option<TcpListener>, standing: Arc<Standing>) -> anyhow::Result<()> {
    match listener {
        Some(listener) => admin::serve(listener, standing).await,
        None => std::future::pending().await,
    }
}

/// The start of the stream, if the flags ask for a stream. A stored position counts before every flag.
fn start(flags: &Decisions, bookmark: &Bookmark) -> Result<Option<Start>, Problem> {
    let to_end = flags.cloudevents && !flags.follow && flags.decision.is_none();
    let from_all = flags.oldest || to_end || bookmark.is_kept() || flags.to.sink.is_some();
    if let Some(stored) = bookmark.stored() {
        return Ok(Some(Start::After(stored.clone())));
    }
    Ok(match &flags.after {
        Some(text) => Some(Start::After(position("--after", text).map_err(Problem::sentence)?)),
        None if flags.open => Some(Start::OpenThenFollow(true)),
        None if from_all => Some(Start::Oldest(true)),
        None => None,
    })
}

/// Reads `LOG:NUMBER`, as it is printed. The error is a sentence.
fn position(flag: &str, text: &str) -> Result<Position, String> {
    let read = text.rsplit_once(':').filter(|(log_id, _)| !log_id.is_empty());
    let read =
        read.and_then(|(log_id, number)| Some(Position { log_id: log_id.into(), sequence: number.parse().ok()? }));
    read.ok_or_else(|| format!("{flag} {text:?} is not LOG:NUMBER, the form that this command prints"))
}

/// The resources of kinds, as users write them. The log outlives kinds, so a kind that is named with its group may no
/// longer be served.
async fn resources(session: &Session, named: &[engine::object::GroupResource]) -> Result<Vec<GroupResource>, Problem> {
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let catalogue = Catalogue::ask(session).await?;
    let resource = |of: &engine::object::GroupResource| match catalogue.find(&of.to_string()) {
        Ok(Served { group, resource, .. }) => Ok(GroupResource { group: group.clone(), resource: resource.clone() }),
        Err(_) if !of.group.is_empty() => {
            Ok(GroupResource { group: of.group.to_string(), resource: of.resource.to_string() })
        }
        Err(why) => Err(Problem::sentence(why)),
    };
    named.iter().map(resource).collect()
}

fn filters(flags: &Decisions, resources: Vec<GroupResource>, namespace: Option<&str>) -> Vec<DecisionFilter> {
    let namespaces = namespace.map(str::to_owned).into_iter().collect::<Vec<_>>();
    let anything = resources.is_empty() && namespaces.is_empty();
    let target = ObjectFilter { resources, namespaces, ..ObjectFilter::default() };
    let targets = if anything { Vec::new() } else { vec![target] };
    let filter = DecisionFilter {
        targets,
        phases: flags.verdicts.iter().map(|&phase| phase.into()).collect(),
        kinds: flags.actions.iter().map(|&action| action.into()).collect(),
        causes: flags.reasons.iter().map(|&cause| cause.into()).collect(),
        cel: flags.cel.clone(),
    };
    if filter == DecisionFilter::default() { Vec::new() } else { vec![filter] }
}

/// The kept phases of one decision, from its beginning on.
async fn phases(service: &mut Service, decision_id: String) -> Result<Vec<DecisionEvent>, Problem> {
    let mut request = GetDecisionRequest { decision_id, before: None };
    let mut found: Vec<DecisionEvent> = Vec::new();
    loop {
        let part = answered(service.within, service.decisions.get_decision(request.clone())).await?;
        found.splice(0..0, part.events);
        let is_whole = found.first().is_some_and(|event| event.phase() == Phase::Proposed);
        request.before = part.searched_from.filter(|_| !is_whole && found.len() < LAST_MAX);
        if request.before.is_none() {
            return Ok(found);
        }
    }
}

/// Past events, the oldest first.
async fn past(
    service: &mut Service,
    flags: &Decisions,
    filters: &[DecisionFilter],
) -> Result<Vec<DecisionEvent>, Problem> {
    let last = match (flags.last, flags.since) {
        (Some(last), _) => usize::try_from(last).unwrap_or(LAST_MAX).min(LAST_MAX),
        (None, Some(_)) => LAST_MAX,
        (None, None) => LAST_DEFAULT,
    };
    let since = flags.since.filter(|age| !age.is_zero()).and_then(|age| SystemTime::now().checked_sub(age));
    let mut request = ListDecisionsRequest {
        include: filters.to_vec(),
        start_time: since.map(prost_types::Timestamp::from),
        page_size: i32::try_from(last).map_or(PAGE_SIZE, |last| last.min(PAGE_SIZE)),
        ..Default::default()
    };
    let mut found: Vec<DecisionEvent> = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = answered(service.within, service.decisions.list_decisions(request.clone())).await?;
        found.extend(page.events);
        if page.next_page_token.is_empty() || found.len() >= last {
            found.truncate(last);
            found.reverse();
            return Ok(found);
        }
        request.page_token = page.next_page_token;
    }
    Err(endless().into())
}

/// Writes what arrives, until the request to stop, or without `goes_on` until the current end of the log.
async fn read(
    session: &mut Session,
    follow: &mut Follow,
    goes_on: bool,
    (mut bookmark, standing): (Bookmark, &Standing),
    stop: &Shutdown,
    out: &mut Out,
) -> Result<(), Problem> {
    let mut stored_at = Instant::now();
    loop {
        let next = tokio::select! {
            biased;
            () = stop.requested() => None,
            next = follow.next(session, goes_on) => Some(next?),
        };
        standing.heard();
        let is_over = next.is_none();
        if let Some(Next::Records(records)) = next {
            out.take(session, records)?;
        }
        out.at = follow.position().or(out.at.take());
        if is_over || stored_at.elapsed() >= STORE_EVERY {
            stored_at = Instant::now();
            standing.wrote(bookmark.store(follow.position().as_ref()).await);
        }
        if is_over || (!goes_on && follow.caught_up()) {
            return Ok(());
        }
    }
}

/// The lines, with columns that are as wide as their widest cell so far.
fn lines_up(widths: &mut Widths, lines: &[Line]) -> String {
    for line in lines {
        if let Line::Row(row) = line {
            widths.widen(row);
        }
    }
    let text = |line: &Line| match line {
        Line::Row(row) => widths.row(row),
        Line::Across(text) => text.clone(),
    };
    lines.iter().map(text).collect()
}

/// The output, and its progress.
struct Out {
    schema: Schema,
    format: Format,
    document: Vec<Value>,
    /// The heading must still be written.
    head: bool,
    widths: Widths,
    /// No record was written yet.
    none: bool,
    at: Option<Position>,
}

impl Out {
    fn take(&mut self, session: &Session, records: Vec<Record>) -> Result<(), Problem> {
        let (mut text, mut lines) = (String::new(), Vec::new());
        let wide = self.format == Format::Wide;
        for record in records {
            self.none = false;
            match self.format {
                Format::Table | Format::Wide => {
                    if std::mem::take(&mut self.head) {
                        lines.push(Line::Row(heading(wide)));
                    }
                    lines.push(line(&record, wide));
                }
                Format::Json | Format::Yaml => self.document.push(record.item(&self.schema)?),
                Format::Ndjson | Format::Tree | Format::Name | Format::Dot | Format::Mermaid | Format::Html => {
                    text.push_str(&document::line(&record.item(&self.schema)?));
                }
            }
            self.at = record.position().or(self.at.take());
        }
        text.push_str(&lines_up(&mut self.widths, &lines));
        if text.is_empty() { Ok(()) } else { session.print(&text) }
    }

    /// Prints the position to continue from.
    fn end(self, session: &Session) -> Result<(), Problem> {
        let at = self.at.map(|at| format!("{}:{}", at.log_id, at.sequence));
        if matches!(self.format, Format::Json | Format::Yaml) {
            let document = Document::list(Kind::DecisionList, Value::from(self.document));
            return session.print_document(document.with("position", at.into()));
        }
        if self.none && matches!(self.format, Format::Table | Format::Wide) {
            session.note(&format!("no decision matches {}", session.where_searched()));
        }
        if let Some(at) = at {
            session.note(&format!("continue with: --after {at}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_a_stream_line_up_and_only_grow() {
        let row = |cells: [&str; 3]| Line::Row(cells.map(Cell::plain).to_vec());
        let mut widths = Widths::default();
        let first = [row(["TIME", "OBJECT", "CAUSE"]), row(["1", "Pod 世界", "x"]), Line::Across("-- gap --\n".into())];
        assert_eq!(lines_up(&mut widths, &first), "TIME  OBJECT    CAUSE\n1     Pod 世界  x\n-- gap --\n");
        assert_eq!(lines_up(&mut widths, &[row(["2", "Pod a", "y"])]), "2     Pod a     y\n");
        assert_eq!(lines_up(&mut widths, &[row(["3", "Pod longer", "z"])]), "3     Pod longer  z\n");
    }

    #[test]
    fn positions_are_read_as_they_are_printed() {
        let at = Position { log_id: "urn:log".into(), sequence: 17 };
        assert_eq!(position("--after", "urn:log:17"), Ok(at));
        for wrong in ["17", ":17", "log:", "log:x", ""] {
            assert!(position("--after", wrong).unwrap_err().contains("is not LOG:NUMBER"), "{wrong:?}");
        }
    }
}
