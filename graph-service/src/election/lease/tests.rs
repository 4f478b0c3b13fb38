use super::*;

#[test]
fn the_clock_of_another_holder_does_not_matter() {
    let at = |time: &str| {
        record(&json!({
            "metadata": { "name": "l", "uid": "u", "resourceVersion": "7" },
            "spec": { "holderIdentity": "other", "leaseTransitions": 3, "leaseDurationSeconds": 15,
                "renewTime": time, "acquireTime": time },
        }))
        .unwrap()
    };
    // Ten years late, ten years early, and none at all: it is kept as the text it is, to tell one record from the next, and never read.
    for time in ["2016-01-01T00:00:00.000000Z", "2036-01-01T00:00:00.000000Z", "yesterday"] {
        assert_eq!(at(time).renewed, time);
        assert_eq!(LeaseRecord { renewed: "".into(), ..at(time) }, LeaseRecord { renewed: "".into(), ..at("now") });
    }
}
