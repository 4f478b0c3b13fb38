use super::{BATCH_MAX_BYTES, requests, responses};
use crate::convert::{received_from_executor, received_from_leader};
use crate::strategy;
use engine::object::Name;
use engine::work::{BATCH_MAX_ENTRIES, LeaseId, ReturnCause, RevokeMode, ToExecutor, ToLeader, WorkReturn};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use prost::Message;

fn ids(count: usize) -> Vec<LeaseId> {
    (0..count as u64).map(|number| LeaseId { term: 7, number }).collect()
}

proptest! {
    #[test]
    fn small_messages_stay_whole(sent in strategy::to_leader(), answered in strategy::to_executor()) {
        let [request] = <[_; 1]>::try_from(requests(sent.clone())).unwrap();
        prop_assert_eq!(received_from_executor(request), Ok(Some(sent)));
        let [response] = <[_; 1]>::try_from(responses(answered.clone())).unwrap();
        prop_assert_eq!(received_from_leader(response).unwrap().unwrap().message, answered);
    }
}

#[test]
fn long_lists_are_cut_in_order() {
    let leases = ids(2 * BATCH_MAX_ENTRIES + 1);
    let started = requests(ToLeader::Started { leases: leases.clone() });
    let read = started.into_iter().map(|request| {
        let Ok(Some(ToLeader::Started { leases })) = received_from_executor(request) else {
            panic!("not what was sent");
        };
        leases
    });
    let read = read.collect::<Vec<_>>();
    assert_eq!(read.iter().map(Vec::len).collect::<Vec<_>>(), [BATCH_MAX_ENTRIES, BATCH_MAX_ENTRIES, 1]);
    assert_eq!(read.concat(), leases);

    let revoked = responses(ToExecutor::Revoke { leases, mode: RevokeMode::Stop, reason: "paused".into() });
    assert_eq!(revoked.len(), 3);

    let returned = |lease| WorkReturn { lease, cause: ReturnCause::NotStarted };
    let returns = ids(BATCH_MAX_ENTRIES + 1).into_iter().map(returned).collect();
    assert_eq!(requests(ToLeader::Reports { reports: Vec::new(), returns }).len(), 2);
}

#[test]
fn nothing_to_say_is_no_message() {
    assert_eq!(requests(ToLeader::Started { leases: Vec::new() }), []);
    assert_eq!(requests(ToLeader::Reports { reports: Vec::new(), returns: Vec::new() }), []);
    assert_eq!(responses(ToExecutor::Grant { leases: Vec::new() }), []);
}

#[test]
fn large_leases_travel_in_small_messages() {
    let mut lease = strategy::lease().new_tree(&mut TestRunner::deterministic()).unwrap().current();
    lease.item.target.name = Name::from("n".repeat(100_000));
    let large = responses(ToExecutor::Grant { leases: vec![lease.clone(); 5] });
    assert_eq!(large.len(), 3);
    assert!(large.iter().all(|response| response.encoded_len() < BATCH_MAX_BYTES + 100));

    lease.item.target.name = Name::from("n".repeat(2 * BATCH_MAX_BYTES));
    assert_eq!(responses(ToExecutor::Grant { leases: vec![lease; 2] }).len(), 2);
}
