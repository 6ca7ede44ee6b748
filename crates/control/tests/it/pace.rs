//! One tenant's questions about many paths, and what others notice of them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;

use crate::client::Client;
use crate::world::World;

/// A tenant whose own policies take a while, with so many files below `many`.
async fn heavy(world: &World, tenant: &str, files: usize) -> Client {
    let (admin, member) = (world.admin(tenant, "root"), world.client(tenant, "ana"));
    let mut archive = bailey_tree::archive::TarWriter::new(Vec::new(), 0);
    for number in 0..files {
        let name = format!("f{number}");
        archive.file(name.as_bytes(), false, 1, &mut &b"x"[..]).unwrap();
    }
    let archive = archive.finish().unwrap();
    member.put(&format!("/v1/tree/tenants/{tenant}/one/file"), "x").await.ok();
    let upload = member.ask(Method::PUT, &format!("/v1/tree/tenants/{tenant}/many?extract=tar"));
    upload.header("content-type", "application/x-tar").body(archive).answer().await.ok();
    // Such that Cedar has to look at all of it, without more stack than an unoptimized build has.
    let condition = format!("!(!({}))", ["resource.protected"; 10].join(" || "));
    for number in 0..12 {
        let text = format!("forbid (principal, action, resource is Path) when {{ {condition} }};");
        let put = admin.ask(Method::PUT, &format!("/v1/policies/p{number}")).header("content-type", "application/json");
        put.body(json!({ "policy": text }).to_string()).answer().await.ok();
    }
    member
}

fn many(tenant: &str) -> String {
    format!("/v1/tree/tenants/{tenant}/many?recursive=true&limit=10000")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_about_many_paths_too_often_at_once_is_told_to_wait_and_nobody_else() {
    let world = World::with(|config| {
        config.checks.per_tenant = 1;
        config.checks.patience = Duration::ZERO;
    })
    .await;
    let (ana, gus) = (heavy(&world, "acme", 60).await, heavy(&world, "globex", 5).await);
    let url = many("acme");
    // They come together, and each takes far longer than they need to arrive.
    let globex = many("globex");
    let (first, second, third, theirs) = tokio::join!(ana.get(&url), ana.get(&url), ana.get(&url), gus.get(&globex));
    theirs.ok();
    let (done, refused): (Vec<_>, Vec<_>) =
        [first, second, third].into_iter().partition(|answer| answer.status.is_success());
    assert_eq!((done.len(), refused.len()), (1, 2), "{refused:?}");
    for answer in refused {
        assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
        assert_eq!(answer.error(429).error, "too_many_checks");
    }
    // A single path is no more than a question, and once the others are done there is room again.
    ana.get("/v1/tree/tenants/acme/one/file").await.ok();
    ana.get(&url).await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_heavy_listings_of_one_tenant_leave_anothers_small_ones_quick() {
    const LISTINGS: usize = 16;
    const READS: usize = 40;
    let world = World::new().await;
    let (ana, gus) = (heavy(&world, "acme", 40).await, heavy(&world, "globex", 1).await);
    let (over, begun, ended) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let lists = async {
        let listing = || async {
            while !over.load(Ordering::SeqCst) {
                begun.fetch_add(1, Ordering::SeqCst);
                let answer = ana.get(&many("acme")).await;
                assert!(answer.status == 200 || answer.status == 429, "{answer:?}");
                ended.fetch_add(1, Ordering::SeqCst);
            }
        };
        futures_util::future::join_all((0..LISTINGS).map(|_| listing())).await;
    };
    let reads = async || {
        let mut took = Vec::new();
        for _ in 0..READS {
            let start = Instant::now();
            // Which is asked about in slices, too.
            gus.get(&many("globex")).await.ok();
            took.push(start.elapsed());
        }
        took.sort_unstable();
        (took[READS / 2], took[READS * 9 / 10])
    };
    let alone = reads().await;
    let beside = async {
        while begun.load(Ordering::SeqCst) < LISTINGS {
            tokio::task::yield_now().await;
        }
        let took = reads().await;
        over.store(true, Ordering::SeqCst);
        took
    };
    let ((), beside) = tokio::join!(lists, beside);
    println!("small listings, p50 and p90: {alone:?} alone, {beside:?} beside {} listings", ended.into_inner());
    // Where each listing had a thread of its own, half of the reads would take thirty times as long.
    assert!(beside.0 < alone.0 * 8 + Duration::from_millis(50), "{alone:?} alone, {beside:?} beside");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_waits_for_any_more_asks_no_further_and_gives_its_place_back() {
    const FEW: usize = 20;
    const MANY: usize = FEW * 100;
    let world = World::with(|config| config.checks.per_tenant = 1).await;
    let ana = heavy(&world, "acme", MANY).await;
    let few = format!("/v1/tree/tenants/acme/many?limit={FEW}");
    let timed = async || {
        let start = Instant::now();
        ana.get(&few).await.ok();
        start.elapsed()
    };
    let alone = timed().await;
    let folder = "tenants/acme/many";
    for (url, accept) in [
        (many("acme"), "*/*"),
        (format!("/v1/tree-history/{folder}"), "*/*"),
        (format!("/v1/tree-diff/{folder}"), "*/*"),
        (format!("/v1/tree/{folder}"), "application/x-tar"),
    ] {
        let ask = ana.ask(Method::GET, &url).header("accept", accept);
        let gone = tokio::time::timeout(alone * 3, ask.answer()).await;
        assert!(gone.is_err(), "{url} was too quick: {gone:?}");
        // It has the only place until it notices. All of it would take a hundred times as long.
        let after = timed().await;
        println!("{url}: {after:?} after it, {alone:?} alone");
        assert!(after < alone * 20 + Duration::from_millis(200), "{url}: {after:?} after it, {alone:?} alone");
    }
}
