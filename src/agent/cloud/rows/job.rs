//! The row of a job for the node itself.
//!
//! ```text
//!  {"generation":"v1alpha2","kind":"imageprepulljob","name":"nightly","node":"gw",
//!   "stage":"Pull","images":["nginx:1.27"],"imageSecrets":"ns/name",…,
//!   "reports":[{"action":"Check","succ":true,"at":"2026-08-06T10:10:00Z"}],"confirmed":0}
//! ```
//!
//! Of upgrades `EdgeCore` has rows of its own, of pre-pulls it has none.

use serde_json::{Value, json};

use crate::model::node_job::{
    Generation, ImageResult, JobAction, JobDetail, JobKey, JobKind, JobReport, JobSpec, JobStage,
    PrePullSpec, StoredJob, UpgradeProgress, UpgradeSpec,
};
use crate::model::time::Timestamp;
use crate::model::tree::{self, Fault, fields};

/// The kind of the rows of jobs.
pub(in crate::agent::cloud) const NODE_JOB: &str = "nodejob";

/// The row of a job.
pub(in crate::agent::cloud) fn node_job(job: &StoredJob) -> String {
    let StoredJob { key, spec, stage, reports, confirmed, upgrade } = job;
    let (stage, finished_at) = match stage {
        JobStage::Waiting => ("waiting", None),
        JobStage::Doing(action) => (action.name(), None),
        JobStage::Finished(at) => ("finished", *at),
    };
    let mut row = json!({
        "generation": key.generation.name(), "kind": key.kind.resource(), "name": key.name,
        "node": key.node, "stage": stage, "finishedAt": finished_at, "confirmed": confirmed,
        "reports": reports.iter().map(report).collect::<Vec<_>>(),
    });
    match spec {
        JobSpec::PrePull(PrePullSpec { images, check_items, image_secret, retry_times }) => {
            row["prePull"] = json!({
                "images": images, "checkItems": check_items, "imageSecrets": image_secret,
                "retryTimes": retry_times,
            });
        }
        JobSpec::Upgrade(spec) => {
            row["upgrade"] = json!({
                "version": spec.version, "image": spec.image, "checkItems": spec.check_items,
                "imageDigestGatter": {"amd64": spec.digests.amd64, "arm64": spec.digests.arm64},
                "requireConfirmation": spec.require_confirmation,
                "imageDigest": spec.image_digest, "historyID": spec.history_id,
            });
        }
        JobSpec::Checks(items) => row["checks"] = json!(items),
        JobSpec::ConfigUpdate => {}
    }
    if *upgrade != UpgradeProgress::default() {
        let UpgradeProgress { is_confirmed, program, from } = upgrade;
        row["progress"] = json!({"isConfirmed": is_confirmed, "program": program, "from": from});
    }
    row.to_string()
}

fn report(report: &JobReport) -> Value {
    let JobReport { action, result, at, detail, .. } = report;
    let mut row = json!({"action": action.name(), "succ": result.is_ok(), "at": at});
    if let Err(why) = result {
        row["reason"] = (**why).into();
    }
    match detail {
        JobDetail::Nothing => {}
        JobDetail::Images(images) => row["images"] = images.iter().map(image).collect(),
        JobDetail::Versions { from, to } => row["versions"] = json!([from, to]),
    }
    row
}

fn image(ImageResult { image, result }: &ImageResult) -> Value {
    match result {
        Ok(()) => json!({"image": image}),
        Err(why) => json!({"image": image, "reason": why}),
    }
}

#[derive(Default)]
struct Row {
    generation: Generation,
    kind: JobKind,
    name: Box<str>,
    node: Box<str>,
    stage: Box<str>,
    finished_at: Box<str>,
    confirmed: i64,
    reports: Vec<Report>,
    pre_pull: Option<PrePullSpec>,
    upgrade: Option<UpgradeSpec>,
    checks: Option<Vec<Box<str>>>,
    progress: Option<UpgradeProgress>,
}

fields!(Row {
    "generation" => generation,
    "kind" => kind,
    "name" => name,
    "node" => node,
    "stage" => stage,
    "finishedAt" => finished_at,
    "confirmed" => confirmed,
    "reports" => reports,
    "prePull" => pre_pull,
    "upgrade" => upgrade,
    "checks" => checks,
    "progress" => progress,
});

#[derive(Default)]
struct Report {
    action: JobAction,
    is_success: bool,
    at: Box<str>,
    reason: Box<str>,
    images: Option<Vec<Image>>,
    versions: Vec<Box<str>>,
}

fields!(Report {
    "action" => action,
    "succ" => is_success,
    "at" => at,
    "reason" => reason,
    "images" => images,
    "versions" => versions,
});

#[derive(Default)]
struct Image {
    image: Box<str>,
    reason: Option<Box<str>>,
}

fields!(Image {
    "image" => image,
    "reason" => reason,
});

/// The job of a row.
pub(super) fn read(text: &str) -> Result<StoredJob, Fault> {
    let row: Row = tree::of_json(text)?;
    let Row { generation, kind, name, node, stage, finished_at, .. } = row;
    let key = JobKey { generation, kind, name, node };
    let stage = match &*stage {
        "waiting" => JobStage::Waiting,
        "finished" => JobStage::Finished(Timestamp::parse(&finished_at)),
        name => JobStage::Doing(JobAction::named(name).ok_or_else(|| {
            Fault::bare(format!("stage: got {:?}, expected an action", tree::shorten(name)))
        })?),
    };
    let spec = match (row.pre_pull, row.upgrade, row.checks) {
        (Some(spec), ..) => JobSpec::PrePull(spec),
        (_, Some(spec), _) => JobSpec::Upgrade(spec),
        (.., Some(items)) => JobSpec::Checks(items),
        _ => JobSpec::ConfigUpdate,
    };
    let reports: Vec<JobReport> =
        row.reports.into_iter().map(|report| report.of_job(&key)).collect();
    let confirmed = usize::try_from(row.confirmed).unwrap_or(0).min(reports.len());
    let upgrade = row.progress.unwrap_or_default();
    Ok(StoredJob { key, spec, stage, reports, confirmed, upgrade })
}

impl Report {
    fn of_job(self, key: &JobKey) -> JobReport {
        let Self { action, is_success, at, reason, images, versions } = self;
        let result =
            |it: Image| ImageResult { image: it.image, result: it.reason.map_or(Ok(()), Err) };
        let detail = match (images, &versions[..]) {
            (Some(images), _) => JobDetail::Images(images.into_iter().map(result).collect()),
            (None, [from, to]) => JobDetail::Versions { from: from.clone(), to: to.clone() },
            (None, _) => JobDetail::Nothing,
        };
        let result = if is_success { Ok(()) } else { Err(reason) };
        JobReport { key: key.clone(), action, result, at: Timestamp::parse(&at), detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let key = |generation, kind| JobKey {
            generation,
            kind,
            name: "nightly".into(),
            node: "gw".into(),
        };
        let at = Timestamp::parse("2026-08-06T10:10:00Z");
        let pull = PrePullSpec {
            images: vec!["a".into(), "b".into()],
            check_items: vec!["disk".into()],
            image_secret: "ns/name".into(),
            retry_times: 2,
        };
        let images = vec![
            ImageResult { image: "a".into(), result: Ok(()) },
            ImageResult { image: "b".into(), result: Err("no".into()) },
        ];
        let of = key(Generation::V1Alpha2, JobKind::PrePull);
        let report = |action, result: Result<(), &str>, detail| JobReport {
            key: of.clone(),
            action,
            result: result.map_err(Into::into),
            at,
            detail,
        };
        let reports = vec![
            report(JobAction::Check, Ok(()), JobDetail::Nothing),
            report(JobAction::Pull, Err("some"), JobDetail::Images(images)),
        ];
        let versions = JobDetail::Versions { from: "v1".into(), to: "v2".into() };
        let upgrade = UpgradeSpec {
            version: "v1.2.3".into(),
            image: "r/i".into(),
            image_digest: "sha256:00".into(),
            require_confirmation: true,
            ..UpgradeSpec::default()
        };
        let finished = JobStage::Finished(at);
        for (spec, stage, reports) in [
            (JobSpec::PrePull(pull.clone()), finished, reports),
            (JobSpec::PrePull(pull), JobStage::Doing(JobAction::Pull), Vec::new()),
            (JobSpec::Checks(vec!["cpu".into()]), JobStage::Waiting, Vec::new()),
            (
                JobSpec::Upgrade(upgrade),
                JobStage::Finished(None),
                vec![report(JobAction::Upgrade, Ok(()), versions)],
            ),
        ] {
            let confirmed = reports.len() / 2;
            let upgrade = match &spec {
                JobSpec::Upgrade(_) => UpgradeProgress {
                    is_confirmed: true,
                    program: "sha256:11".into(),
                    from: "v1".into(),
                },
                _ => UpgradeProgress::default(),
            };
            let job = StoredJob { key: of.clone(), spec, stage, reports, confirmed, upgrade };
            assert_eq!(read(&node_job(&job)), Ok(job));
        }
    }

    #[test]
    fn a_row_that_is_none_is_refused() {
        for (text, expected) in [
            ("[]", "got a list, expected a map"),
            (r#"{"stage":"Dance"}"#, "stage: got \"Dance\", expected an action"),
            (r#"{"stage":"Pull","reports":[{"action":7}]}"#, "reports[0].action: got 7"),
        ] {
            let why = read(text).expect_err(expected).to_string();
            assert!(why.starts_with(expected), "got {why:?}, expected {expected:?}");
        }
    }
}
