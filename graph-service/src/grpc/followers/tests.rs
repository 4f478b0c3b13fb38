use super::*;
use tokio::time::Instant;

/// The delay of an idle writer after this time and these bytes were spent.
async fn delay(share: &Share) -> Duration {
    let started = Instant::now();
    Metered::new(async {}, share.clone()).await;
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_uses_up_its_time_or_its_bytes_waits_alone() {
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
async fn all_readers_together_leave_the_collector_its_processors() {
    let places = Places::default();
    let taken: Vec<Place> =
        (0..20).map(|_| places.take(Some(&Cut::default()), &Visibility::default()).unwrap()).collect();
    let shares: Vec<Share> = taken.iter().map(Place::share).collect();
    let began = Instant::now();
    let mut bytes = 0.0;
    while began.elapsed() < Duration::from_secs(10) {
        for share in &shares {
            delay(share).await;
            share.spend_bytes(1024 * 1024);
            bytes += 1024.0 * 1024.0;
        }
    }
    let quiet = places.take(Some(&Cut::default()), &Visibility::default()).unwrap();
    assert_eq!(delay(&quiet.share()).await, Duration::ZERO, "no reader waits for what others were sent");
    let expected = share::all_bytes_per_second();
    let rate = bytes / began.elapsed().as_secs_f64();
    let most = 20.0 * 64.0 * 1024.0 * 1024.0;
    assert!(rate < 1.1 * expected.min(most) && rate > 0.9 * expected.min(most), "{rate} of {expected}");
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
