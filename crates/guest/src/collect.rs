//! stub
pub fn main() -> anyhow::Result<()> {
    Ok(())
}
