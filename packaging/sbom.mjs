// Validates SBOMs against the JSON schema of CycloneDX: node sbom.mjs FILE...  `make release-check` installs the library.
import { readFileSync } from "node:fs";
import { Spec, Validation } from "@cyclonedx/cyclonedx-library";

for (const file of process.argv.slice(2)) {
  const text = readFileSync(file, "utf8");
  const validator = new Validation.JsonStrictValidator(JSON.parse(text).specVersion);
  const error = await validator.validate(text);
  if (error !== null) {
    console.error(`${file}: ${JSON.stringify(error, null, 1)}`);
    process.exitCode = 1;
  } else {
    console.log(`${file}: valid`);
  }
}
