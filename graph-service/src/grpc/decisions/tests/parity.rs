//! Disagreements with another collector, as pages.

use super::*;
use crate::grpc::LONG_READS_MAX;
use crate::grpc::small_world::{disagree, secrets};
use engine::object::{Object, ResourceVersion};
use proto::decision::v1beta1::disagreement::{Class, Outcome};

/// The other collector follows none of the decisions: five dependents of a deleted owner, and one that was created
/// after the owner had gone.
fn disagreeing() -> World {
    let dependents = ["a", "b", "c", "d", "e"].map(|name| secret(name, &["owner"]));
    let created = Object { resource_version: ResourceVersion::parse("20"), ..secret("created", &["owner"]) };
    let mut inputs = vec![Input::TermGained(term(1))];
    inputs.extend(facts([&[secret("owner", &[])][..], &dependents].concat(), "owner"));
    inputs.push(Input::Seen { collection: secrets(), object: created });
    let mut leader = Leader::new(config(Mode::Observe), 7);
    disagree(&mut leader, inputs);
    let log = DecisionLog::in_memory();
    let (leadership, known) = watch::channel(leadership(1));
    serving(shared(leader, log.clone(), known), Writer::new(&log), leadership)
}

impl World {
    async fn disagreements(&self, request: &ListDisagreementsRequest) -> Result<ListDisagreementsResponse, Status> {
        self.service.list_disagreements(Request::new(request.clone())).await.map(Response::into_inner)
    }

    fn begin_term(&self, number: u64) {
        self.service.shared.reader.alter(|leader| {
            leader.handle(Time::ZERO, Input::TermLost { leader_endpoint: String::new() });
            leader.handle(Time::ZERO, Input::TermGained(term(number)));
        });
    }
}

fn numbers(answer: &ListDisagreementsResponse) -> Vec<u64> {
    answer.events.iter().map(|event| event.disagreement.as_ref().unwrap().number).collect()
}

#[tokio::test(start_paused = true)]
async fn pages_have_each_disagreement_once_the_newest_first() {
    let world = disagreeing();
    let mut request = ListDisagreementsRequest { page_size: 4, ..Default::default() };
    let first = world.disagreements(&request).await.unwrap();
    assert_eq!(numbers(&first), [6, 5, 4, 3]);
    assert!(first.events.iter().all(|event| event.phase() == Phase::Disagreed && event.position.is_none()));
    request.page_token = first.next_page_token;
    let second = world.disagreements(&request).await.unwrap();
    assert_eq!((numbers(&second), second.next_page_token.as_str()), (vec![2, 1], ""));

    let other = ListDisagreementsRequest { classes: vec![Class::Unknown.into()], ..request.clone() };
    let none = ListDisagreementsRequest { page_token: "one".to_owned(), ..request.clone() };
    for (request, expected) in [(&other, "PAGE_TOKEN_MISMATCH"), (&none, "TOKEN_MALFORMED")] {
        assert_eq!(reason(&world.disagreements(request).await.unwrap_err()), expected);
    }
    world.begin_term(2);
    assert_eq!(reason(&world.disagreements(&request).await.unwrap_err()), "PAGE_TOKEN_EXPIRED");
}

#[tokio::test(start_paused = true)]
async fn only_the_wanted_disagreements_are_listed() {
    let world = disagreeing();
    let names = async |request: ListDisagreementsRequest| {
        let answer = world.disagreements(&request).await.unwrap();
        answer.events.into_iter().map(|event| event.target.unwrap().name).collect::<Vec<_>>().join(" ")
    };
    let of_class = |class: Class| ListDisagreementsRequest { classes: vec![class.into()], ..Default::default() };
    assert_eq!(names(of_class(Class::OwnChange)).await, "created");
    assert_eq!(names(of_class(Class::Unknown)).await.split(' ').count(), 5);
    let of = |outcome: Outcome| ListDisagreementsRequest { outcomes: vec![outcome.into()], ..Default::default() };
    assert_eq!(names(of(Outcome::OursOnly)).await.split(' ').count(), 6);
    assert_eq!(names(of(Outcome::TheirsOnly)).await, "");
    let named = ObjectFilter { uids: vec!["uid-c".to_owned()], ..Default::default() };
    let include = vec![DecisionFilter { targets: vec![named], ..Default::default() }];
    // The page looks for what is wanted among all that are kept.
    let request = ListDisagreementsRequest { include, page_size: 1, ..Default::default() };
    assert_eq!(names(request).await, "c");
    let unknown = ListDisagreementsRequest { classes: vec![99], ..Default::default() };
    assert_eq!(reason(&world.disagreements(&unknown).await.unwrap_err()), "FIELD_INVALID");
}

#[tokio::test(start_paused = true)]
async fn a_page_is_of_one_term_also_if_another_one_begins_meanwhile() {
    let world = disagreeing();
    let shared = Arc::clone(&world.service.shared);
    let turns = shared.long_reads.acquire_many(LONG_READS_MAX as u32).await.unwrap();
    let request = ListDisagreementsRequest::default();
    let listing = world.disagreements(&request);
    tokio::pin!(listing);
    assert!(futures::poll!(&mut listing).is_pending(), "it waits for its turn");
    world.begin_term(2);
    drop(turns);
    assert_eq!(reason(&listing.await.unwrap_err()), "PAGE_TOKEN_EXPIRED");
}

#[tokio::test]
async fn the_time_of_a_disagreement_is_the_same_in_each_answer() {
    let world = disagreeing();
    let request = ListDisagreementsRequest::default();
    let times = async || {
        let answer = world.disagreements(&request).await.unwrap();
        answer.events.into_iter().map(|event| event.event_time.unwrap()).collect::<Vec<_>>()
    };
    let first = times().await;
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert_eq!((first.len(), times().await), (6, first));
}
