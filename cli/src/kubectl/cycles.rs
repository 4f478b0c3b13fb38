//! `cycles`: objects that own each other.

use super::document::{Document, Kind, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Cycles, Format};
use super::naming::shown;
use super::picture;
use super::service::{Need, Service};
use super::session::Session;
use proto::graph::v1beta1::find_cycles_response::Cycle;

const FORMATS: [Format; 5] = [Format::Tree, Format::Json, Format::Yaml, Format::Dot, Format::Mermaid];

pub(super) async fn run(flags: Cycles) -> Answered {
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let mut service = Service::connect(&mut session, Need::Graph).await?;
    let (found, unsynced) = service.cycles(session.include(), flags.blocking).await?;
    session.lacks(&unsynced);
    write(&session, &found)?;
    if found.is_empty() {
        session.note(&format!("no objects own each other {}", session.where_searched()));
        return Ok(Ending::Fine);
    }
    Ok(Ending::Findings)
}

fn write(session: &Session, found: &[Cycle]) -> Result<(), Problem> {
    let nodes: Vec<_> = found.iter().flat_map(|cycle| &cycle.members).collect();
    let edges: Vec<_> = found.iter().flat_map(|cycle| &cycle.edges).collect();
    match session.format {
        Format::Json | Format::Yaml => {
            let cycles = Schema::load()?.values("FindCyclesResponse.Cycle", found)?;
            session.print_document(Document::list(Kind::CycleList, cycles))
        }
        Format::Dot => session.print(&picture::dot(&nodes, &edges)),
        Format::Mermaid => session.print(&picture::mermaid(&nodes, &edges)),
        Format::Tree | Format::Table | Format::Wide | Format::Name | Format::Ndjson | Format::Html => {
            session.print(&text(found))
        }
    }
}

fn text(found: &[Cycle]) -> String {
    let mut text = String::new();
    for (number, cycle) in found.iter().enumerate() {
        let state = if cycle.deadlocked { "all wait for each other" } else { "does not block a deletion now" };
        text.push_str(&format!("CYCLE {}  {} objects, {state}\n", number + 1, cycle.member_count));
        for member in &cycle.members {
            let object = member.r#ref.clone().unwrap_or_default();
            let relaxed = if object.uid == cycle.unblock_candidate_uid {
                "  (the collector would unblock its reference first)"
            } else {
                ""
            };
            text.push_str(&format!("  {}{relaxed}\n", shown(&object)));
        }
        let more = (cycle.member_count as usize).saturating_sub(cycle.members.len());
        if more > 0 {
            text.push_str(&format!("  and {more} more\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::graph::v1beta1::Node;
    use proto::r#type::v1beta1::ObjectRef;

    #[test]
    fn a_cycle_names_its_members_and_what_would_give_way() {
        let node = |name: &str| {
            let object = ObjectRef { kind: "Pod".into(), name: name.into(), uid: name.into(), ..Default::default() };
            Node { r#ref: Some(object), ..Default::default() }
        };
        let cycle = Cycle {
            members: vec![node("a"), node("b")],
            member_count: 5,
            deadlocked: true,
            unblock_candidate_uid: "b".into(),
            ..Default::default()
        };
        let expected = "CYCLE 1  5 objects, all wait for each other\n  Pod a\n  Pod b  (the collector would unblock its reference first)\n  and 3 more\n";
        assert_eq!(text(&[cycle]), expected);
    }
}
