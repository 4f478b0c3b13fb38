use super::*;

async fn built(objects: usize) -> (Api, Server, World) {
    let server = Server::new(1);
    let api = Api::new(kube::Client::new(server.router(), "default"));
    let world = build(&api, &server, objects).await.unwrap();
    (api, server, world)
}

#[tokio::test]
async fn an_object_that_was_not_collected_is_found() {
    let (api, server, world) = built(25).await;
    let deleted: usize = world.acts.iter().map(|act| act.deleted.len()).sum();
    let goes: usize = world.acts.iter().map(|act| act.goes.len()).sum();
    let changes: usize = world.acts.iter().map(|act| act.changes.len()).sum();
    assert_eq!(world.built, deleted + goes + world.stays.len());

    let problems = problems(&world, &server);
    let count = |part: &str| problems.iter().filter(|problem| problem.contains(part)).count();
    assert_eq!(count("should be deleted, but still exists"), deleted + goes);
    assert_eq!(count("has the references"), changes);
    assert_eq!(problems.len(), deleted + goes + changes);

    let settings = world.stays.iter().find(|stay| stay.thing.name == "settings").unwrap();
    api.delete(&settings.thing, Cascade::Foreground).await.unwrap();
    let now = super::problems(&world, &server);
    assert!(now.contains(&"ConfigMap shop/settings should stay, but is being deleted".to_owned()), "{now:?}");
    let billing = world.stays.iter().find(|stay| stay.thing.name == "billing").unwrap();
    api.delete(&billing.thing, Cascade::Background).await.unwrap();
    let now = super::problems(&world, &server);
    assert!(now.contains(&"Database shop/billing should exist, but is gone".to_owned()), "{now:?}");
}

#[tokio::test]
async fn a_world_of_one_object_has_one_owner_for_it() {
    let (_, _, world) = built(1).await;
    let cascade = world.acts.last().unwrap();
    assert_eq!((cascade.deleted.len(), cascade.goes.len()), (1, 1));
}
