# Short names for the sessions of noxfile.py, which says what they do.

NOX = .venv/bin/nox

.PHONY: help main_job quick test test_all smoke lint reference docs release

help:
	@echo "make main_job  train the example on real data, to a held-out accuracy"
	@echo "make test      run the fast tests and one job of each kind on TensorFlow 2.21"
	@echo "make quick     run the unit tests, and FILES=..., in an environment that is kept"
	@echo "make test_all  run all tests on TensorFlow 2.21 and 2.15"
	@echo "make smoke     train one model of each kind on every TensorFlow and Python"
	@echo "make lint      check style and types"
	@echo "make reference write the pages of docs/ that are made from the code"
	@echo "make docs      build the site in build/site"
	@echo "make release   build the sdist and the wheel in dist/, check and try them"

main_job: $(NOX)
	$(NOX) -s main_job

quick: $(NOX)
	$(NOX) -s quick -- $(FILES)

test: $(NOX)
	$(NOX) -s tests

test_all: $(NOX)
	$(NOX) -s tests_all

smoke: $(NOX)
	$(NOX) -s smoke

lint: $(NOX)
	$(NOX) -s lint

reference: $(NOX)
	$(NOX) -s reference

docs: $(NOX)
	$(NOX) -s docs

release: $(NOX)
	$(NOX) -s release

$(NOX): constraints/dev.txt
	python3 -m venv .venv
	.venv/bin/pip install -c constraints/dev.txt nox
	touch $@
