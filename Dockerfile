# natkal serve: docker build -t natkal . && docker run -p 8000:8000 -v RUN:/run/model -v TOKEN:/run/token natkal
FROM python:3.12-slim
WORKDIR /app
COPY pyproject.toml README.md ./
COPY src src
RUN pip install --no-cache-dir '.[serve,files]' \
    && useradd --create-home natkal && mkdir -p /run/model && chown natkal /run/model
USER natkal
VOLUME /run/model
EXPOSE 8000
HEALTHCHECK --interval=10s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=3)"]
ENTRYPOINT ["natkal", "serve", "/run/model", "--host", "0.0.0.0"]
CMD ["--token-file", "/run/token"]
