-- Written by the release of schema 0001 from made-up values; never edited.
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE calibrations (
	id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	model TEXT NOT NULL, 
	revision TEXT NOT NULL, 
	entries TEXT NOT NULL, 
	summary TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "calibrations" VALUES(1,'kv_scales','Qwen/Qwen3-8B','abc','{"layers.0.k_scale":0.5}','',1767225600.0);
CREATE TABLE events (
	id INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	kind TEXT NOT NULL, 
	node TEXT NOT NULL, 
	message TEXT NOT NULL, 
	details TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "events" VALUES(1,1767225600.0,'tuner','box','started','{}');
CREATE TABLE fingerprints (
	id INTEGER NOT NULL, 
	strict_key TEXT NOT NULL, 
	loose_key TEXT NOT NULL, 
	strict TEXT NOT NULL, 
	loose TEXT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT uq_fingerprints_keys UNIQUE (strict_key, loose_key)
);
INSERT INTO "fingerprints" VALUES(1,'91f1854bc8f76f8106e26262e365f41e4236fc1ef6df38146d0f97087738cb49','06a519c03f6775513cc39cd50e716f2e2d022f0ef3f0e349131553b53261660c','{"driver":"580.95","gpus":"2xNVIDIA L40S","triton":{"unknown":"triton is not installed there"}}','{"architecture":"Qwen3ForCausalLM","gpus":"2xNVIDIA L40S","size":"8200000000","vllm_minor":"0.33","weights":"bf16"}');
CREATE TABLE kernel_configs (
	"key" TEXT NOT NULL, 
	kernel TEXT NOT NULL, 
	bucket TEXT NOT NULL, 
	arch TEXT NOT NULL, 
	source_hash TEXT NOT NULL, 
	device TEXT NOT NULL, 
	driver TEXT NOT NULL, 
	triton TEXT NOT NULL, 
	runtime TEXT NOT NULL, 
	settings TEXT NOT NULL, 
	median_us FLOAT NOT NULL, 
	default_us FLOAT NOT NULL, 
	kept BOOLEAN NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "kernel_configs" VALUES('6def32780c381cd7cb311ff32bf66031d489272413d86f259c5ceb33900f2bbc','mxfp4_linear','m64','sm89','abc','NVIDIA L40S','580.95','3.8.0','13.0','{"BLOCK_M":64}',10.0,12.0,1,1767225600.0);
CREATE TABLE measurements (
	id INTEGER NOT NULL, 
	trial_id INTEGER, 
	profile_id TEXT, 
	workload TEXT NOT NULL, 
	figures TEXT NOT NULL, 
	repeats INTEGER NOT NULL, 
	seconds FLOAT NOT NULL, 
	tool TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(trial_id) REFERENCES trials (id) ON DELETE CASCADE, 
	FOREIGN KEY(profile_id) REFERENCES profiles (id) ON DELETE CASCADE
);
INSERT INTO "measurements" VALUES(1,1,NULL,'{}','{"output_tok_s":[1900.0,2000.0,2100.0],"tpot_ms":[15.0,16.0,17.0]}',3,60.0,'vllm bench serve 0.33.0',1767225600.0);
INSERT INTO "measurements" VALUES(2,NULL,'83f371033f73','{}','{"output_tok_s":[1900.0,2000.0,2100.0],"tpot_ms":[15.0,16.0,17.0]}',3,60.0,'vllm bench serve 0.33.0',1767225600.0);
CREATE TABLE nodes (
	name TEXT NOT NULL, 
	lease_owner TEXT NOT NULL, 
	lease_expires FLOAT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "nodes" VALUES('box','elsewhere:1:1',1767225660.0);
CREATE TABLE profile_trials (
	profile_id TEXT NOT NULL, 
	trial_id INTEGER NOT NULL, 
	PRIMARY KEY (profile_id, trial_id), 
	FOREIGN KEY(profile_id) REFERENCES profiles (id) ON DELETE CASCADE, 
	FOREIGN KEY(trial_id) REFERENCES trials (id) ON DELETE CASCADE
);
INSERT INTO "profile_trials" VALUES('83f371033f73',1);
CREATE TABLE profiles (
	id TEXT NOT NULL, 
	fingerprint_id INTEGER NOT NULL, 
	model TEXT NOT NULL, 
	"plan" TEXT NOT NULL, 
	flags TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	"by" TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	node TEXT NOT NULL, 
	source TEXT NOT NULL, 
	note TEXT NOT NULL, 
	validated_at FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(fingerprint_id) REFERENCES fingerprints (id) ON DELETE RESTRICT
);
INSERT INTO "profiles" VALUES('83f371033f73',1,'Qwen/Qwen3-8B','{"checkpoint":"Qwen/Qwen3-8B","kv_cache_dtype":"fp8","tensor_parallel_size":2}','{}','measured','tuner 0.1.0',1767225600.0,'box','','',0.0);
CREATE TABLE quality_results (
	id INTEGER NOT NULL, 
	trial_id INTEGER, 
	profile_id TEXT, 
	check_name TEXT NOT NULL, 
	low FLOAT NOT NULL, 
	mid FLOAT NOT NULL, 
	high FLOAT NOT NULL, 
	limit_value FLOAT NOT NULL, 
	passed BOOLEAN NOT NULL, 
	note TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(trial_id) REFERENCES trials (id) ON DELETE CASCADE, 
	FOREIGN KEY(profile_id) REFERENCES profiles (id) ON DELETE CASCADE
);
INSERT INTO "quality_results" VALUES(1,1,NULL,'kl',0.0,0.01,0.02,0.05,1,'',1767225600.0);
INSERT INTO "quality_results" VALUES(2,NULL,'83f371033f73','kl',0.0,0.01,0.02,0.05,1,'',1767225600.0);
CREATE TABLE trials (
	id INTEGER NOT NULL, 
	study TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	node TEXT NOT NULL, 
	fingerprint_id INTEGER, 
	"plan" TEXT NOT NULL, 
	settings TEXT NOT NULL, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	created FLOAT NOT NULL, 
	started FLOAT NOT NULL, 
	finished FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(fingerprint_id) REFERENCES fingerprints (id) ON DELETE RESTRICT
);
INSERT INTO "trials" VALUES(1,'first','serve','box',1,'{"checkpoint":"Qwen/Qwen3-8B","kv_cache_dtype":"fp8","tensor_parallel_size":2}','{}','complete','','box:1:1',1767225600.0,1767225600.0,1767225600.0);
INSERT INTO "trials" VALUES(2,'first','serve','box',1,'{"checkpoint":"Qwen/Qwen3-8B","kv_cache_dtype":"fp8","tensor_parallel_size":2}','{}','infeasible','does not fit','',1767225600.0,0.0,1767225600.0);
INSERT INTO "trials" VALUES(3,'first','serve','box',1,'{"checkpoint":"Qwen/Qwen3-8B","kv_cache_dtype":"fp8","tensor_parallel_size":2}','{}','failed','died','box:1:1',1767225600.0,1767225600.0,1767225600.0);
INSERT INTO "trials" VALUES(4,'first','serve','box',1,'{"checkpoint":"Qwen/Qwen3-8B","kv_cache_dtype":"fp8","tensor_parallel_size":2}','{}','waiting','','',1767225600.0,0.0,0.0);
CREATE INDEX ix_fingerprints_loose_key ON fingerprints (loose_key);
CREATE INDEX ix_trials_fingerprint_id ON trials (fingerprint_id);
CREATE INDEX ix_trials_state ON trials (state);
CREATE INDEX ix_trials_study ON trials (study);
CREATE INDEX ix_profiles_fingerprint_id ON profiles (fingerprint_id);
CREATE INDEX ix_profiles_model ON profiles (model);
CREATE INDEX ix_measurements_profile_id ON measurements (profile_id);
CREATE INDEX ix_measurements_trial_id ON measurements (trial_id);
CREATE INDEX ix_quality_results_profile_id ON quality_results (profile_id);
CREATE INDEX ix_quality_results_trial_id ON quality_results (trial_id);
CREATE INDEX ix_kernel_configs_kernel ON kernel_configs (kernel);
CREATE INDEX ix_calibrations_model ON calibrations (model);
CREATE INDEX ix_events_at ON events (at);
COMMIT;
