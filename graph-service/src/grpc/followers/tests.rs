use super::*;
use tokio::time::Instant;

/// How long a writer takes that has nothing to do, where this much time and these bytes were spent before.
async fn delay(share: &Share) -> Duration {
    let started = Instant::now();
    Metered::new(async {}, share.clone()).await;
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn whoever_uses_up_its_time_or_its_bytes_waits_and_nobody_else() {
    let (busy, large, other) = (Share::default(), Share::default(), Share::default());
    busy.spend_time(Duration::from_millis(150));
    assert_eq!(delay(&busy).await, Duration::ZERO, "a second's worth is there at once");
    busy.spend_time(Duration::from_millis(250));
    let waited = delay(&busy).await;
    assert!(waited > Duration::from_millis(900) && waited < Duration::from_millis(1100), "{waited:?}");
    large.spend_bytes(3 * 64 * 1024 * 1024);
    assert_eq!(delay(&large).await.as_secs(), 2);
    assert_eq!(delay(&other).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_writer_is_measured() {
    let share = Share::default();
    let work = async {
        let mut sum = 0_u64;
        for number in 0..20_000_000_u64 {
            sum = std::hint::black_box(sum.wrapping_add(number));
        }
        sum
    };
    Metered::new(work, share.clone()).await;
    share.spend_time(Duration::from_millis(200));
    assert!(delay(&share).await > Duration::ZERO);
}
