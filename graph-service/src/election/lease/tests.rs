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
    // Ten years late, ten years early, and invalid: the text is kept to distinguish records, and never parsed.
    for time in ["2016-01-01T00:00:00.000000Z", "2036-01-01T00:00:00.000000Z", "yesterday"] {
        assert_eq!(at(time).renewed, time);
        assert_eq!(LeaseRecord { renewed: "".into(), ..at(time) }, LeaseRecord { renewed: "".into(), ..at("now") });
    }
}
