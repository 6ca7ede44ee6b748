use bailey_protocol::jail::JailOp;

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;
use crate::jail::tests::{Jail, connect, pair, sandbox};
use crate::tasks::Tasks;

/// Parks against a jail that answers late, after `given_up`; returns what the jail is asked next.
async fn late_park(given_up: impl FnOnce(BoxFuture<'static, Result<Parked, WallError>>) -> BoxFuture<'static, ()>) {
    let (client, jail) = connect();
    let tasks = Tasks::new();
    let wall = Arc::new(ContainerWall::new(Jailed::new(client, tasks, Duration::from_millis(50))));
    let (asked, heard) = oneshot::channel();
    let (answer, told) = std::sync::mpsc::channel();
    let (done, next) = oneshot::channel();
    std::thread::spawn(move || {
        let (request, _) = jail.read();
        asked.send(()).unwrap();
        told.recv().unwrap();
        park_answer(&jail, request.id);
        drop(done.send(jail.read().0));
    });
    let park = wall.park(sandbox(1), "0".repeat(64).parse().unwrap(), Limits::default());
    heard.await.unwrap();
    given_up(park).await;
    answer.send(()).unwrap();
    let next = timeout(Duration::from_secs(5), next).await.expect("the late cage is forgotten").unwrap();
    assert_eq!(next.op, JailOp::Destroy { sandbox: sandbox(1) });
}

fn park_answer(jail: &Jail, id: u64) {
    let ((stream, _far), (death, _life)) = (pair(), pair());
    jail.answer(id, Ok(JailAnswer::Parked { fences: Vec::new() }), &[&stream, &death]);
}

#[tokio::test]
async fn a_cage_that_comes_after_its_deadline_is_destroyed() {
    late_park(|park| Box::pin(async move { assert!(matches!(park.await, Err(WallError::Overdue { op: "park" }))) }))
        .await;
}

#[tokio::test]
async fn a_cage_that_nobody_waits_for_any_more_is_destroyed() {
    late_park(|park| Box::pin(async move { drop(park) })).await;
}
