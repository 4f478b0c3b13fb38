//! `stuck`: objects that make no progress, and the objects that must go first.

use super::columns::{Cell, columns, now, span};
use super::document::{Document, Kind, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Ages, Format, Stuck};
use super::guards::{self, Waiting};
use super::naming::{lines_by_type, shown};
use super::narrow::Narrow;
use super::service::{Need, Service};
use super::session::Session;
use super::why;
use proto::graph::v1beta1::find_stuck_objects_response::Stuck as Found;

const FORMATS: [Format; 5] = [Format::Table, Format::Json, Format::Yaml, Format::Name, Format::Ndjson];

pub(super) async fn run(flags: Stuck) -> Answered {
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let mut service = Service::connect(&mut session, Need::Verdict).await?;
    let (mut found, unsynced) = service.stuck(session.include(), flags.older_than).await?;
    session.lacks(&unsynced);
    let narrow = Narrow::of(&flags.selectors, Ages::default());
    narrow.retain(&mut session, &mut found, |stuck| stuck.node.as_ref()).await;
    let waiting = service.waiting_for(found.iter().flat_map(|stuck| &stuck.reasons)).await;
    write(&session, &found, &waiting)?;
    if found.is_empty() {
        let seconds = i64::try_from(flags.older_than.as_secs()).unwrap_or(i64::MAX);
        session.note(&match seconds {
            0 => format!("nothing is stuck {}", session.where_searched()),
            _ => format!(
                "nothing is stuck {} for longer than {}; --older-than 0s shows all waiting objects",
                session.where_searched(),
                span(seconds)
            ),
        });
        return Ok(Ending::Fine);
    }
    Ok(Ending::Findings)
}

fn write(session: &Session, found: &[Found], waiting: &[Waiting]) -> Result<(), Problem> {
    const MESSAGE: &str = "FindStuckObjectsResponse.Stuck";
    match session.format {
        Format::Json | Format::Yaml => {
            let objects = Schema::load()?.values(MESSAGE, found)?;
            session.print_document(Document::list(Kind::StuckList, objects))
        }
        Format::Ndjson => session.print(&Schema::load()?.lines(MESSAGE, found)?),
        Format::Name => session.print(&lines_by_type(found.iter().map(|stuck| stuck.node.as_ref()?.r#ref.as_ref()))),
        Format::Table | Format::Wide | Format::Tree | Format::Dot | Format::Mermaid | Format::Html
            if found.is_empty() =>
        {
            Ok(())
        }
        Format::Table | Format::Wide | Format::Tree | Format::Dot | Format::Mermaid | Format::Html => {
            session.print_table(&table(found, waiting, now()))
        }
    }
}

fn table(found: &[Found], waiting: &[Waiting], now: i64) -> String {
    let cells = |stuck: &Found| {
        let object = stuck.node.clone().unwrap_or_default().r#ref.unwrap_or_default();
        let since = stuck.since.map(|since| span(now - since.seconds)).unwrap_or_default();
        let because = stuck.reasons.first().map(why::reason_words).unwrap_or_default();
        let first: Vec<String> = stuck.root_blockers.iter().take(3).map(shown).collect();
        // A held object waits for the end of the hold.
        let release = stuck.reasons.first().and_then(|reason| guards::release_command(reason, &object, waiting));
        vec![
            Cell::plain(object.namespace.as_str()),
            Cell::bold(format!("{}/{}", object.kind, object.name)),
            Cell::plain(since),
            Cell::state(why::verdict_word(stuck.verdict())),
            Cell::plain(because),
            Cell::plain(release.unwrap_or_else(|| first.join(", "))),
        ]
    };
    columns(
        &["NAMESPACE", "NAME", "SINCE", "IS", "BECAUSE", "MOVE FIRST"],
        &found.iter().map(cells).collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::graph::v1beta1::reason::Code;
    use proto::graph::v1beta1::{Node, Reason, Verdict};
    use proto::r#type::v1beta1::ObjectRef;

    #[test]
    fn what_does_not_move_is_told_with_what_has_to_move_first() {
        let object = |kind: &str, name: &str| ObjectRef {
            kind: kind.into(),
            namespace: "shop".into(),
            name: name.into(),
            ..Default::default()
        };
        let node = |kind: &str, name: &str| Some(Node { r#ref: Some(object(kind, name)), ..Default::default() });
        let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        let finalizer = Reason {
            code: Code::FinalizerPresent.into(),
            detail: "backup.example.com/s3".into(),
            ..Default::default()
        };
        let dependents = Reason {
            code: Code::BlockingDependents.into(),
            related: vec![object("Pod", "a")],
            related_count: 1,
            ..Default::default()
        };
        let found = [
            Found {
                node: node("Deployment", "web"),
                verdict: Verdict::Blocked.into(),
                reasons: vec![dependents],
                root_blockers: vec![object("Pod", "a")],
                since: at(0),
                redacted_count: 0,
            },
            Found {
                node: node("Pod", "a"),
                verdict: Verdict::Blocked.into(),
                reasons: vec![finalizer],
                root_blockers: vec![],
                since: at(600),
                redacted_count: 0,
            },
            Found {
                node: node("Pod", "b"),
                verdict: Verdict::Held.into(),
                reasons: vec![Reason {
                    code: Code::Protected.into(),
                    detail: "protections/keep: dear".into(),
                    ..Default::default()
                }],
                root_blockers: vec![],
                since: at(600),
                redacted_count: 0,
            },
        ];
        insta::assert_snapshot!(anstream::adapter::strip_str(&table(&found, &[], 1_200)).to_string(), @r"
        NAMESPACE  NAME            SINCE  IS       BECAUSE                             MOVE FIRST
        shop       Deployment/web  20m    blocked  Pod shop/a has to be deleted first  Pod shop/a
        shop       Pod/a           10m    blocked  finalizer backup.example.com/s3     -
        shop       Pod/b           10m    held     held by protections/keep: dear      ownergraph release protection/keep
        ");
    }
}
